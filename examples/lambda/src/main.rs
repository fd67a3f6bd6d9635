//! Starts the runtime; the function itself is the library.

use std::sync::Arc;

use domain::{ports::Clock, time::Timestamp};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::Value;
use solvegate::config::{Environment, Sources};
use solvegate_lambda::{Function, WallClock};
use tokio::sync::Mutex;

#[tokio::main]
async fn main() -> Result<(), Error> {
    solvegate::logging::start("info")?;
    let sources = Sources { environment: Environment::of_process(), ..Sources::default() };
    let clock: Arc<dyn Clock> = Arc::new(WallClock::default());
    let function = Function::open(&sources.load()?, clock).await?;
    // A container serves one invocation at a time; the lock only proves it to the compiler.
    let function = &Mutex::new(function);
    let handler = service_fn(async |event: LambdaEvent<Value>| {
        let deadline = Timestamp::from_millis(event.context.deadline);
        function.lock().await.handle(event.payload, deadline).await.map_err(Error::from)
    });
    lambda_runtime::run(handler).await
}

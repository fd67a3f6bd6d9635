//! `solvegate sim`: runs the simulated provider by itself.

use std::time::Duration;

use domain::secret::Secret;
use simulator::{BehaviourConfig, Sim, SimConfig};

use super::{Context, serve::cannot_listen};
use crate::{
    cli::SimArgs,
    exit::{Exit, Failure},
    output, signals,
};

pub(super) async fn run(context: &Context, args: &SimArgs) -> Result<(), Failure> {
    let key = args.key.as_deref().map(|key| context.sources.secret("--key", key)).transpose()?;
    let mut config = SimConfig::new(behaviour(args, key));
    config.listen = args.listen;
    config.ledger_file.clone_from(&args.ledger);
    config.tasks_file.clone_from(&args.tasks);
    if !args.listen.ip().is_loopback() {
        let message = "--listen: the simulator is for this machine only; listen on 127.0.0.1";
        return Err(Failure::new(Exit::Usage, message));
    }
    let sim = Sim::start(config).await.map_err(|error| cannot_listen(args.listen, error))?;
    output::line(format_args!("simulator at {} (ledger at {}/ledger)", sim.url(), sim.url()))?;
    signals::Signals::listen()?.stop().await;
    sim.stop().await;
    Ok(())
}

fn behaviour(args: &SimArgs, key: Option<Secret>) -> BehaviourConfig {
    let mut behaviour = BehaviourConfig::new(args.seed);
    if let Some(length) = args.solve_time {
        behaviour = behaviour.solving_in(length.max(Duration::from_millis(1)));
    }
    behaviour.threads = args.threads;
    behaviour.realistic = args.realistic;
    behaviour.captchaai = args.captchaai;
    behaviour.bans = args.bans;
    behaviour.key = key;
    behaviour
}

//! The machine: what happens to a claim, on ports only.

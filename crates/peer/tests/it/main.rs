//! Nodes that talk to each other: servers and clients in one process, over addresses of the loopback, with real
//! certificates.

mod bounds;
mod budgets;
mod calls;
mod certificates;
mod ending;
mod nodes;
mod paths;
mod raw;
mod relay;
mod spoiled;

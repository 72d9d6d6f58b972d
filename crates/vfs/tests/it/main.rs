//! The file system as a front end sees it: the namespace and the cache together, over an origin that changes.

#[expect(dead_code, reason = "shared with the tests of `namespace`, which use all of it")]
#[path = "../../../namespace/tests/it/far.rs"]
mod far;
mod harness;
mod model;
mod operator;
mod outage;
mod permission;
mod reads;

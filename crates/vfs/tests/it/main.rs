//! The file system as a front end sees it: the namespace and the cache together, over an origin that changes.

mod back;
mod back_model;
mod changes;
mod changes_model;
mod copies;
mod cuts_model;
mod deep;
mod foreign_model;
mod harness;
mod interrupted;
mod junctions;
mod limits;
mod model;
mod operator;
mod outage;
mod permission;
mod prefetch;
mod privilege;
mod reads;
mod replaced;
mod silent;
mod times;
mod writable;
mod writing;
mod writing_model;
mod xattr;

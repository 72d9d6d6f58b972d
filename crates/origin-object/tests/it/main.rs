//! Objects as files, over a real store of each dialect (MinIO, Azurite), and over one that answers what no real one would.

mod contract;
mod hostile;
mod lost;
mod store;
mod tree;
mod writes;

//! Objects as files, over a real store (MinIO), and over one that answers what no real one would.

mod hostile;
mod store;
mod tree;
mod writes;

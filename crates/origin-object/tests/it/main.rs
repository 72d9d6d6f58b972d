//! Objects as files, over a real store of each dialect (MinIO, Azurite; a stand-in for Google's), and over one that answers
//! what no real one would.

mod contract;
mod described;
mod drafts;
mod fake_gcs;
mod gcs;
mod hostile;
mod lost;
mod parted;
mod refused;
mod store;
mod tree;
mod writes;

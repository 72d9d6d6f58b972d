//! A share of Azure Files as files, over a stand-in for the service, and over one that answers what no real one would.

mod contract;
mod hostile;
mod share;
mod tree;
mod writes;

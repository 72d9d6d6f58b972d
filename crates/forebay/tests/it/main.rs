//! The binary as its users meet it. One integration binary; each module is a subject.

mod azfile;
mod bench;
mod churn;
mod clocks;
mod crash;
mod credentials;
mod lab;
mod lab_figures;
mod lab_write;
mod large_bucket;
mod mount;
mod objects;
mod operator;
mod overwritten;
mod refused;
mod reload;
mod replaced;
mod rpcbind;
mod s3;
mod serve;
mod signals;
mod tier;
mod usage;
mod workloads;
mod write_back;

//! What the tests of all crates share: real parts to test against, and how to report those that are missing.

pub mod aws;
pub mod azfile;
pub mod azurite;
pub mod etcd;
pub mod fake_gcs;
pub mod far_origin;
pub mod ganesha;
pub mod gcs;
pub mod lab;
pub mod lossy_line;
pub mod minio;
pub mod mpi;
pub mod origin_contract;
pub mod ports;
pub mod process;
pub mod programs;
pub mod request_log;
pub mod slurm;
pub mod ssh;
pub mod stores;

//! The S3 front as its clients meet it: over TCP, with a file system over an origin in memory.

mod bodies;
mod boto3;
mod buckets;
mod client;
mod conditions;
mod drafts;
mod fairness;
mod kept;
mod listing;
mod malformed;
mod model;
mod multipart;
mod objects;
mod offered;
mod part_sums;
mod parts_at_store;
mod refusals;
mod served;
mod sign;
mod signatures;
mod virtual_hosts;

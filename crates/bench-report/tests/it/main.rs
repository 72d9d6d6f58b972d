//! The outputs as their readers meet them. One integration binary; each module is a subject.

mod example;
mod outputs;
mod page;

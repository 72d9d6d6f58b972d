//! Load as an experiment uses it: jobs over every kind of target, with faults planted.

mod engine;
mod faulty;

//! The journal on real files, and in processes that are killed.

mod content;
mod files;
mod kill;
mod rot;

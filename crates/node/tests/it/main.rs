//! Several nodes in one process, over real sockets with real certificates, in front of one store in memory.

mod changes;
mod copies;
mod file_copies;
mod guests;
mod held;
mod hot;
mod nodes;
mod notices;
mod reads;
mod slow;

//! Against nfs-ganesha.

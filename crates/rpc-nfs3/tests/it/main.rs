//! The wire types against themselves (round trips) and against hostile bytes.

mod every_decoder;
mod hostile;
mod mutations;
mod record;
mod round_trip;
mod values;

//! Who supplies the bytes that a fetch is for.

/// Who is asked for bytes that are missing here. A node alone has the origin only.
///
/// The order is that of waiting: the origin waits for nobody, a stripe's primary for the origin, a node that keeps a
/// copy for the primary. Fetches of each have a budget of bytes in flight of their own, so nodes that fetch from each other cannot wait in
/// a circle, however full they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Supplier {
    #[default]
    Origin,
    /// The node that is the primary of the stripe.
    Primary,
    /// A node that keeps a copy of the stripe.
    Copy,
}

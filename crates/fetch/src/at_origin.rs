//! Calls to an object's origin that are made here and not by `namespace`: those about bytes.

use std::sync::Arc;

use namespace::{Found, KnownNode, Namespace};
use origin::{Origin, Reference};
use types::{Error, ErrorKind, FileId, Result};

/// One call about the object, with the reference that it has now: where the origin says that the reference is stale, it is
/// resolved again and the call is repeated. The object's junction learns of outages by the answer.
pub async fn at_origin<T, F: Future<Output = Result<T>> + Send>(
    namespace: &Arc<Namespace>,
    id: FileId,
    call: impl Fn(Arc<dyn Origin>, Reference) -> F + Sync,
) -> Result<T> {
    let Found::Node(node) = namespace.getattr_known(id)? else {
        return Err(Error::new(ErrorKind::IsADirectory, "read or write", id));
    };
    let call = &call;
    let ask = |node: Arc<KnownNode>| async move {
        let (origin, reference) = namespace.origin_of(&node)?;
        namespace.noted(&node, call(origin, reference).await)
    };
    namespace.ask_healed(node, ask).await
}

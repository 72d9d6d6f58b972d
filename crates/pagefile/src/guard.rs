//! Calls into the database that may panic: bytes of a disk must not end a thread, nor the process.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! { static CONTAINED: Cell<bool> = const { Cell::new(false) }; }

/// What the call comes to; of one that panics, the message. Panics in it are not printed: who gets the message logs it.
pub fn contained<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !CONTAINED.get() {
                before(info);
            }
        }));
    });
    let outer = CONTAINED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(call));
    CONTAINED.set(outer);
    done.map_err(|panic| message(panic.as_ref()))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

//! Of a data set in a bucket: the predecessor's table, and what each pass costs at the store.

use bench_report::{Cell, PUBLISHED, Table, TableRow, estimate};

use super::{LoaderPlan, latency_ms, rate};
use crate::{CacheMode, ResultBuilder, Triple, cost, sample};

/// Fills in what the first repetition cost at the storage.
pub fn costs(draft: &mut ResultBuilder, plan: &LoaderPlan, prices: &cost::PriceList, first: &Triple) {
    let taken = CacheMode::ALL.map(|mode| {
        let sample = first.of(mode);
        cost::StorageUse {
            calls: sample.origin_kinds.clone(),
            bytes_out: sample.origin_bytes,
            bytes_kept: plan.layout.total_bytes(),
            seconds: sample.makespan(),
            passes: sample.epochs,
        }
    });
    let [direct, cold, warm] = &taken;
    draft.file.tables.push(prices.table(&[("Direct", direct), ("Cold", cold), ("Warm", warm)]));
}

/// The columns of the study's predecessor, which read a bucket through the cache and around it.
pub fn gets(draft: &mut ResultBuilder, plan: &LoaderPlan, triples: &[Triple], invalid: &[String]) {
    let mib = plan.object_bytes() as f64 / f64::from(1 << 20);
    let row = |name: &str, mode: CacheMode| {
        let cells = vec![
            Cell::text(name),
            Cell::text(format!("{mib} MiB")),
            estimate(&sample::values(triples, mode, rate)),
            estimate(&sample::values(triples, mode, latency_ms)),
            Cell::missing("the disks of others are not looked at"),
        ];
        TableRow { invalid: invalid.to_vec(), ..TableRow::new(cells) }
    };
    let rows = vec![
        row("S3 COLD through Forebay", CacheMode::Cold),
        row("S3 WARM through Forebay", CacheMode::Warm),
        row("S3 DIRECT", CacheMode::Direct),
    ];
    draft.file.tables.push(Table::new("GET of objects", &PUBLISHED.aistore.gets.columns, rows).noted([
        "Clients list the bucket first and then GET each object, directly and from the tier's S3 front alike.",
    ]));
}

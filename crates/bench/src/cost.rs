//! What a pass costs at a storage service: requests by kind, bytes that leave it, and what is kept there meanwhile.
//!
//! Prices are in `prices.toml`, each with its date and where it stands. None is made up: what a list lacks, the user
//! gives, or there is no sum.

use std::collections::BTreeMap;

use bench_report::{Cell, Table, TableRow};
use clap::{Args, ValueEnum};
use serde::Deserialize;
use types::Result;

use crate::{GIB, refuse};

const LISTS: &str = include_str!("../prices.toml");
/// The seconds of a month, as clouds bill it.
const MONTH_SECONDS: f64 = 730.0 * 3600.0;

#[derive(Args, Clone, Debug, Default)]
pub struct CostArgs {
    /// Tell what a pass costs by a list of prices: azure-blob-2018, azure-file-2018. What a list lacks has to be given with
    /// --price
    #[arg(long, value_name = "LIST")]
    cost: Option<String>,
    /// A price of yours, in place of the list's: put, list, get, delete (each of 10,000 requests), egress (of a GiB that
    /// leaves the service), storage (of a GiB in a month): egress=0.08,put=0.05. Without --cost all of them are needed
    #[arg(long, value_name = "KIND=AMOUNT", value_delimiter = ',')]
    price: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
enum ChargeKind {
    Put,
    List,
    Get,
    Delete,
    Egress,
    Storage,
}

impl ChargeKind {
    /// Its name, what there is a number of, and of how many of that the price is.
    fn described(self) -> (&'static str, &'static str, f64) {
        match self {
            ChargeKind::Put => ("put", "requests that store", 10_000.0),
            ChargeKind::List => ("list", "requests that list", 10_000.0),
            ChargeKind::Get => ("get", "requests that read", 10_000.0),
            ChargeKind::Delete => ("delete", "requests that remove", 10_000.0),
            ChargeKind::Egress => ("egress", "GiB out", 1.0),
            ChargeKind::Storage => ("storage", "GiB kept, months", 1.0),
        }
    }

    /// Of a request, by the name of the bench's own client for it (of HTTP or of NFS), or of the tier's. What a tier asks
    /// its storage for is taken for one request. `None`: no request goes out for it.
    fn of_call(name: &str) -> Option<ChargeKind> {
        Some(match name.to_ascii_lowercase().as_str() {
            "get" | "head" | "read" | "getattr" | "access" | "readlink" | "xattrs" | "fsinfo"
            | "pathconf" => ChargeKind::Get,
            // To look for a name may be to list what begins with it.
            "list" | "root" | "lookup" | "readdir" | "readdirplus" => ChargeKind::List,
            "delete" | "abort" | "remove" | "rmdir" => ChargeKind::Delete,
            "busy" | "statfs" | "fsstat" => return None,
            _ => ChargeKind::Put,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lists {
    list: Vec<PriceList>,
}

#[derive(Debug, Deserialize)]
pub struct PriceList {
    name: String,
    service: String,
    currency: String,
    /// A key that is no kind of charge is refused.
    #[serde(flatten)]
    prices: BTreeMap<ChargeKind, Price>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Price {
    amount: f64,
    as_of: String,
    source: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct StorageUse {
    pub calls: BTreeMap<String, u64>,
    pub bytes_out: u64,
    pub bytes_kept: u64,
    pub seconds: f64,
    /// Passes that all this is of.
    pub passes: u64,
}

impl CostArgs {
    /// None unless costs are asked for.
    pub fn read(&self) -> Result<Option<PriceList>> {
        let mut list = match &self.cost {
            Some(name) => list_of(name)?,
            None if self.price.is_empty() => return Ok(None),
            None => PriceList {
                name: String::new(),
                service: "whoever is paid what the command line says".to_owned(),
                currency: "own currency".to_owned(),
                prices: BTreeMap::new(),
            },
        };
        for given in &self.price {
            let (kind, price) = price_of_user(given)?;
            list.prices.insert(kind, price);
        }
        let kinds = ChargeKind::value_variants().iter();
        let missing: Vec<&str> =
            kinds.filter(|kind| !list.prices.contains_key(kind)).map(|kind| kind.described().0).collect();
        if !missing.is_empty() {
            let whence = match &self.cost {
                Some(name) => format!("--cost {name}: the list has"),
                None => "--price without --cost: there is".to_owned(),
            };
            return refuse(format!(
                "{whence} no price for {}, and none is made up; give what you pay: --price {}",
                missing.join(", "),
                missing.iter().map(|kind| format!("{kind}=AMOUNT")).collect::<Vec<_>>().join(",")
            ));
        }
        Ok(Some(list))
    }
}

fn list_of(name: &str) -> Result<PriceList> {
    let lists: Lists = toml::from_str(LISTS).expect("the lists were read by a test");
    let known = lists.list.iter().map(|list| list.name.as_str()).collect::<Vec<_>>().join(", ");
    match lists.list.into_iter().find(|list| list.name == name) {
        Some(list) => Ok(list),
        None => refuse(format!(
            "--cost {name}: there are lists of prices for {known}; or leave --cost out and give all with --price"
        )),
    }
}

fn price_of_user(text: &str) -> Result<(ChargeKind, Price)> {
    let read = text.split_once('=').and_then(|(kind, amount)| {
        let kind = ChargeKind::from_str(kind, false).ok()?;
        let amount: f64 = amount.parse().ok().filter(|amount: &f64| amount.is_finite() && *amount >= 0.0)?;
        Some((kind, Price { amount, as_of: "this run".to_owned(), source: "the command line".to_owned() }))
    });
    let Some(read) = read else {
        return refuse(format!(
            "--price {text}: write put, list, get, delete (of 10,000 requests), egress (of a GiB) or storage (of a GiB in a \
             month), and an amount: egress=0.08"
        ));
    };
    Ok(read)
}

impl StorageUse {
    /// Of one pass.
    fn amount(&self, kind: ChargeKind) -> f64 {
        let of_all = match kind {
            ChargeKind::Egress => self.bytes_out as f64 / GIB,
            ChargeKind::Storage => self.bytes_kept as f64 / GIB * self.seconds / MONTH_SECONDS,
            kind => {
                let of_kind = self.calls.iter().filter(|(name, _)| ChargeKind::of_call(name) == Some(kind));
                of_kind.map(|(_, count)| *count as f64).sum()
            }
        };
        of_all / self.passes.max(1) as f64
    }
}

impl PriceList {
    fn price(&self, kind: ChargeKind) -> f64 {
        self.prices.get(&kind).map_or(0.0, |price| price.amount)
    }

    /// Of one pass.
    fn cost(&self, kind: ChargeKind, taken: &StorageUse) -> f64 {
        taken.amount(kind) / kind.described().2 * self.price(kind)
    }

    pub fn total(&self, taken: &StorageUse) -> f64 {
        ChargeKind::value_variants().iter().map(|kind| self.cost(*kind, taken)).sum()
    }

    /// One pass in each of these states.
    pub fn table(&self, states: &[(&str, &StorageUse)]) -> Table {
        let mut columns = vec!["What".to_owned(), format!("Price ({})", self.currency)];
        columns.extend(states.iter().map(|(name, _)| (*name).to_owned()));
        columns.extend(states.iter().map(|(name, _)| format!("{name} ({})", self.currency)));
        let row = |&kind: &ChargeKind| {
            let (_, what, of) = kind.described();
            let what = if of > 1.0 { format!("{what} (price of {of})") } else { what.to_owned() };
            let mut cells = vec![Cell::text(what), Cell::Number(self.price(kind))];
            cells.extend(states.iter().map(|(_, taken)| Cell::Number(taken.amount(kind))));
            cells.extend(states.iter().map(|(_, taken)| Cell::Number(self.cost(kind, taken))));
            TableRow::new(cells)
        };
        let mut rows: Vec<TableRow> = ChargeKind::value_variants().iter().map(row).collect();
        let none = || Cell::missing("a sum of different things");
        let mut total = vec![Cell::text("all together"), none()];
        total.extend(states.iter().map(|_| none()));
        total.extend(states.iter().map(|(_, taken)| Cell::Number(self.total(taken))));
        rows.push(TableRow::new(total));
        let mut table = Table::new("What a pass costs at the storage", columns, rows);
        table.notes = vec![
            format!("Prices of {}.", self.service),
            "What the tier asked its storage for is counted as one request each; the tier's own machine is not in it.".to_owned(),
        ];
        let told = |(kind, price): (&ChargeKind, &Price)| {
            let (kind, Price { amount, as_of, source }) = (kind.described().0, price);
            format!("{kind}: {amount} {}, as of {as_of} ({source}).", self.currency)
        };
        table.notes.extend(self.prices.iter().map(told));
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(cost: Option<&str>, prices: &[&str]) -> Result<Option<PriceList>> {
        let price = prices.iter().map(|price| (*price).to_owned()).collect();
        CostArgs { cost: cost.map(str::to_owned), price }.read()
    }

    fn asked(list: &str, prices: &[&str]) -> Result<Option<PriceList>> {
        read(Some(list), prices)
    }

    #[test]
    fn every_price_has_a_date_and_a_source() {
        let lists: Lists = toml::from_str(LISTS).expect("lists");
        assert_eq!(lists.list.len(), 2);
        for list in &lists.list {
            for price in list.prices.values() {
                let year = price.as_of.get(..4).and_then(|year| year.parse().ok());
                assert!(
                    year.is_some_and(|year: u32| (2000..2100).contains(&year)),
                    "{}: {price:?}",
                    list.name
                );
                assert!(price.source.contains('.') && price.amount > 0.0, "{}: {price:?}", list.name);
            }
        }
    }

    #[test]
    fn what_a_list_lacks_is_asked_for_and_never_made_up() {
        let error = asked("azure-blob-2018", &[]).expect_err("no egress").to_string();
        assert!(error.contains("no price for egress") && error.contains("--price egress=AMOUNT"), "{error}");
        let own = |prices: &[&str]| read(None, prices);
        let error = own(&["egress=0.09", "storage=0.02"]).expect_err("no requests").to_string();
        assert!(error.contains("put=AMOUNT,list=AMOUNT,get=AMOUNT,delete=AMOUNT"), "{error}");
        let all = own(&["put=1", "list=1", "get=1", "delete=1", "egress=1", "storage=1"]);
        assert!(all.expect("prices").expect("asked for").currency.contains("own"));
        let error = asked("gcs", &[]).expect_err("no list").to_string();
        assert!(error.contains("azure-blob-2018"), "{error}");
        for wrong in ["egress", "egress=-1", "egress=much", "speed=1", "egress=inf"] {
            let error = asked("azure-blob-2018", &[wrong]).expect_err(wrong).to_string();
            assert!(error.contains("egress=0.08"), "{error}");
        }
        assert!(CostArgs::default().read().expect("nothing asked").is_none());
    }

    #[test]
    fn a_pass_costs_its_requests_by_kind_its_bytes_and_their_keeping() {
        let prices = asked("azure-blob-2018", &["egress=0.5", "put=3"]);
        let prices = prices.expect("prices").expect("asked for");
        let calls =
            [("GET", 20_000), ("HEAD", 10_000), ("LIST", 5_000), ("PUT", 1), ("PART", 9_999), ("DELETE", 0)];
        let taken = StorageUse {
            calls: calls.map(|(name, count)| (name.to_owned(), count)).into(),
            bytes_out: 4 << 30,
            bytes_kept: 2 << 30,
            seconds: MONTH_SECONDS,
            passes: 2,
        };
        // Of one pass: 1.5 and 0.25 and 0.5 times 10,000 requests, 2 GiB out, 1 GiB for a month.
        let wanted = 1.5 * 0.00027 + 0.25 * 0.00027 + 0.5 * 3.0 + 2.0 * 0.5 + 0.0224;
        assert!((prices.total(&taken) - wanted).abs() < 1e-9, "{} {wanted}", prices.total(&taken));
        let of_a_tier = StorageUse {
            calls: [("read", 10_000), ("getattr", 10_000), ("readdir", 10_000), ("statfs", 9)]
                .map(|(n, c)| (n.to_owned(), c))
                .into(),
            ..StorageUse::default()
        };
        assert!((prices.total(&of_a_tier) - 3.0 * 0.00027).abs() < 1e-9);
        let table = prices.table(&[("Direct", &taken), ("Warm", &of_a_tier)]);
        assert!(table.rows.iter().all(|row| row.cells.len() == table.columns.len()));
        assert!(table.notes.iter().any(|note| note.contains("the command line")));
    }
}

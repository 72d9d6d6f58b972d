//! Who asks, from the published rules alone: SharedKey
//! (<https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key>), the account's SAS
//! (`create-account-sas`) and the service's (`create-service-sas`).

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use chrono::{DateTime, NaiveDate, Utc};
use http::HeaderMap;
use http::request::Parts;
use ring::hmac;

use super::request::AzFileRequestSeen;
use super::tree::{AzFileRefused, TICKS, now};

const FAILED: AzFileRefused = (403, "AuthenticationFailed");
const SKEW_MINUTES: i64 = 15;
/// In this order.
const SIGNED: [&str; 11] = [
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
];

/// What a call needs of a SAS: a letter of its permissions, and the kind of resource (service, container, object).
pub struct Needs {
    pub permissions: &'static str,
    pub resource: char,
}

#[derive(Clone)]
pub struct Account {
    pub name: String,
    /// Base64.
    pub key: String,
}

impl Account {
    fn signature(&self, text: &str) -> String {
        let key = BASE64_STANDARD.decode(&self.key).expect("the stand-in's own key");
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), text.as_bytes());
        BASE64_STANDARD.encode(tag.as_ref())
    }

    pub fn check(
        &self,
        parts: &Parts,
        asked: &AzFileRequestSeen,
        needs: &Needs,
    ) -> Result<(), AzFileRefused> {
        if let Some(given) = parts.headers.get("authorization") {
            let given = given.to_str().map_err(|_| FAILED)?;
            let signed = given.strip_prefix(&format!("SharedKey {}:", self.name)).ok_or(FAILED)?;
            let text = self.string_to_sign(parts, asked)?;
            return if signed == self.signature(&text) { Ok(()) } else { Err(FAILED) };
        }
        if asked.query.contains_key("sig") {
            return self.check_sas(&asked.query, asked, needs);
        }
        Err((401, "NoAuthenticationInformation"))
    }

    fn string_to_sign(&self, parts: &Parts, asked: &AzFileRequestSeen) -> Result<String, AzFileRefused> {
        let text =
            |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let date = if text("x-ms-date").is_empty() { text("date") } else { text("x-ms-date") };
        let date = DateTime::parse_from_rfc2822(date).map_err(|_| FAILED)?;
        if (moment() - date.with_timezone(&Utc)).num_minutes().abs() > SKEW_MINUTES {
            return Err(FAILED);
        }
        let mut lines = vec![parts.method.as_str()];
        lines.extend(SIGNED.iter().map(|name| match *name {
            "content-length" if text(name) == "0" => "",
            "date" if !text("x-ms-date").is_empty() => "",
            name => text(name),
        }));
        let mut signed = lines.join("\n");
        for (name, value) in own_headers(&parts.headers) {
            signed.push_str(&format!("\n{name}:{}", value.trim()));
        }
        signed.push_str(&format!("\n/{}{}", self.name, parts.uri.path()));
        for (name, value) in &asked.query {
            signed.push_str(&format!("\n{name}:{value}"));
        }
        Ok(signed)
    }

    /// Of a SAS for an account, and of one for the file service.
    fn check_sas(
        &self,
        query: &BTreeMap<String, String>,
        asked: &AzFileRequestSeen,
        needs: &Needs,
    ) -> Result<(), AzFileRefused> {
        let of = |name: &str| query.get(name).map_or("", String::as_str);
        let text = if query.contains_key("ss") {
            if !of("ss").contains('f') || !of("srt").contains(needs.resource) {
                return Err((403, "AuthorizationResourceTypeMismatch"));
            }
            let fields = ["sp", "ss", "srt", "st", "se", "sip", "spr", "sv"].map(of);
            format!("{}\n{}\n\n", self.name, fields.join("\n"))
        } else {
            let path = match of("sr") {
                "s" => asked.share.clone(),
                "f" => format!("{}/{}", asked.share, asked.path),
                _ => return Err(FAILED),
            };
            let resource = format!("/file/{}/{path}", self.name);
            let first = [of("sp"), of("st"), of("se"), &resource, of("si"), of("sip"), of("spr"), of("sv")];
            let shown = ["rscc", "rscd", "rsce", "rscl", "rsct"].map(of);
            [first.join("\n"), shown.join("\n")].join("\n")
        };
        if of("sig") != self.signature(&text) {
            return Err(FAILED);
        }
        let now = moment();
        let over =
            time(of("se")).is_none_or(|end| end < now) || time(of("st")).is_some_and(|start| start > now);
        if over {
            return Err(FAILED);
        }
        match needs.permissions.chars().any(|permission| of("sp").contains(permission)) {
            true => Ok(()),
            false => Err((403, "AuthorizationPermissionMismatch")),
        }
    }
}

fn moment() -> DateTime<Utc> {
    DateTime::from_timestamp(now() / TICKS, 0).unwrap_or_default()
}

fn own_headers(headers: &HeaderMap) -> BTreeMap<&str, &str> {
    let own = headers.iter().filter(|(name, _)| name.as_str().starts_with("x-ms-"));
    own.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?))).collect()
}

/// A day, or a day and a time.
fn time(text: &str) -> Option<DateTime<Utc>> {
    let day =
        || NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0).map(|time| time.and_utc());
    DateTime::parse_from_rfc3339(text).ok().map(|time| time.with_timezone(&Utc)).or_else(day)
}

//! The calls, by their paths. A parameter that a call does not know is refused.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, header};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::fields::only;
use super::objects::{Buckets, Facts, GcsObject, Objects, now};
use super::{GcsAnswer, GcsRefused, answer};

const COMPOSE_MAX: usize = 32;
const PAGE: usize = 1000;
const METADATA_MAX: usize = 8 << 10;

/// A request as the calls look at it.
pub struct GcsRequestSeen {
    method: Method,
    pub bucket: String,
    call: GcsCall,
    query: BTreeMap<String, String>,
}

enum GcsCall {
    Buckets,
    Bucket,
    List,
    Upload,
    Object(String),
    Compose(String),
    Rewrite { from: String, bucket: String, to: String },
}

fn bad(why: impl Into<String>) -> GcsRefused {
    (400, "invalid", why.into())
}

fn parsed(body: &Bytes) -> Result<Value, GcsRefused> {
    serde_json::from_slice(body).map_err(|_| (400, "parseError", "Parse Error".to_owned()))
}

fn no_such(bucket: &str, key: &str) -> GcsRefused {
    (404, "notFound", format!("No such object: {bucket}/{key}"))
}

fn decoded(text: &str) -> Result<String, GcsRefused> {
    let text = percent_decode_str(text).decode_utf8().map_err(|_| bad("no UTF-8"))?;
    Ok(text.into_owned())
}

impl GcsRequestSeen {
    pub fn of(parts: &Parts) -> Result<GcsRequestSeen, GcsRefused> {
        let path = parts.uri.path();
        let pieces: Vec<String> =
            path.split('/').skip(1).map(decoded).collect::<Result<Vec<_>, GcsRefused>>()?;
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let (bucket, call) = match &pieces[..] {
            ["storage", "v1", "b"] => ("", GcsCall::Buckets),
            ["storage", "v1", "b", bucket] => (*bucket, GcsCall::Bucket),
            ["storage", "v1", "b", bucket, "o"] => (*bucket, GcsCall::List),
            ["upload", "storage", "v1", "b", bucket, "o"] => (*bucket, GcsCall::Upload),
            ["storage", "v1", "b", bucket, "o", key]
            | ["download", "storage", "v1", "b", bucket, "o", key] => {
                (*bucket, GcsCall::Object((*key).into()))
            }
            ["storage", "v1", "b", bucket, "o", key, "compose"] => (*bucket, GcsCall::Compose((*key).into())),
            ["storage", "v1", "b", from_bucket, "o", from, "rewriteTo", "b", bucket, "o", to] => {
                let (from, bucket, to) = ((*from).into(), (*bucket).into(), (*to).into());
                (*from_bucket, GcsCall::Rewrite { from, bucket, to })
            }
            _ => return Err((404, "notFound", "Not Found".into())),
        };
        let pairs = parts.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let query = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decoded(name)?, decoded(&value.replace('+', " "))?))
        });
        let query = query.collect::<Result<BTreeMap<_, _>, GcsRefused>>()?;
        Ok(GcsRequestSeen { method: parts.method.clone(), bucket: bucket.to_owned(), call, query })
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    fn number(&self, name: &str) -> Result<Option<u64>, GcsRefused> {
        let number = |text: &str| text.parse().map_err(|_| bad(format!("Invalid value for {name}: {text}")));
        self.text(name).map(number).transpose()
    }

    /// All calls know the general ones.
    fn knows(&self, own: &[&str]) -> Result<(), GcsRefused> {
        const GENERAL: [&str; 5] = ["fields", "alt", "prettyPrint", "projection", "userProject"];
        match self
            .query
            .keys()
            .find(|name| !GENERAL.contains(&name.as_str()) && !own.contains(&name.as_str()))
        {
            Some(odd) => Err(bad(format!("Unknown name \"{odd}\": it cannot be bound to a query parameter"))),
            None => Ok(()),
        }
    }

    /// `of`: what the conditions' names have in their middle.
    fn conditions(&self, of: &str, object: Option<&GcsObject>) -> Result<(), GcsRefused> {
        let generation = object.map_or(0, |object| object.generation);
        let metageneration = object.map_or(0, |object| object.metageneration);
        for (name, now) in [("Generation", generation), ("Metageneration", metageneration)] {
            let wanted = self.number(&format!("if{of}{name}Match"))?;
            let unwanted = self.number(&format!("if{of}{name}NotMatch"))?;
            if wanted.is_some_and(|wanted| wanted != now) || unwanted == Some(now) {
                let why = "At least one of the pre-conditions you specified did not hold.";
                return Err((412, "conditionNotMet", why.into()));
            }
        }
        Ok(())
    }

    /// The object that is named, of this generation if one is.
    fn named<'a>(&self, objects: &'a mut Objects, key: &str) -> Result<&'a mut GcsObject, GcsRefused> {
        let generation = self.number("generation")?;
        let object = objects.get_mut(key);
        object
            .filter(|object| generation.is_none_or(|generation| generation == object.generation))
            .ok_or_else(|| no_such(&self.bucket, key))
    }

    fn told(&self, value: Value) -> GcsAnswer {
        let value = match self.text("fields") {
            Some(fields) => only(value, fields),
            None => value,
        };
        answer(200, value.to_string().into())
    }

    pub fn carry_out(
        &self,
        buckets: &mut Buckets,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<GcsAnswer, GcsRefused> {
        match (&self.method, &self.call) {
            (&Method::POST, GcsCall::Buckets) => {
                self.knows(&["project"])?;
                let told = parsed(body)?;
                let name = told["name"].as_str().unwrap_or_default();
                buckets.make(name)?;
                Ok(self.told(buckets.bucket(name)?))
            }
            (&Method::GET, GcsCall::Bucket) => Ok(self.told(buckets.bucket(&self.bucket)?)),
            (&Method::GET, GcsCall::List) => self.list(buckets),
            (&Method::POST, GcsCall::Upload) => self.upload(buckets, headers, body),
            (&Method::GET, GcsCall::Object(key)) => self.get(buckets, key, headers),
            (&Method::PATCH, GcsCall::Object(key)) => self.patch(buckets, key, body),
            (&Method::DELETE, GcsCall::Object(key)) => self.delete(buckets, key),
            (&Method::POST, GcsCall::Compose(key)) => self.compose(buckets, key, body),
            (&Method::POST, GcsCall::Rewrite { from, bucket, to }) => {
                self.rewrite(buckets, from, (bucket, to), body)
            }
            _ => Err((405, "methodNotAllowed", "Method Not Allowed".into())),
        }
    }

    fn list(&self, buckets: &mut Buckets) -> Result<GcsAnswer, GcsRefused> {
        self.knows(&["prefix", "delimiter", "pageToken", "maxResults", "includeTrailingDelimiter"])?;
        let prefix = self.text("prefix").unwrap_or_default();
        let delimiter = self.text("delimiter").filter(|text| !text.is_empty());
        let most = self.number("maxResults")?.map_or(PAGE, |most| (most as usize).clamp(1, PAGE));
        let after = self.text("pageToken");
        let objects = buckets.of(&self.bucket)?;
        let (mut items, mut prefixes, mut last, mut next) =
            (Vec::new(), Vec::<String>::new(), String::new(), None);
        for (key, object) in objects.range(prefix.to_owned()..) {
            let Some(rest) = key.strip_prefix(prefix) else { break };
            let up_to = delimiter.and_then(|delimiter| Some(rest.find(delimiter)? + delimiter.len()));
            let shown = up_to.map_or(key.as_str(), |end| &key[..prefix.len() + end]);
            if after.is_some_and(|after| shown <= after) || prefixes.last().is_some_and(|last| last == shown)
            {
                continue;
            }
            if items.len() + prefixes.len() == most {
                next = Some(last);
                break;
            }
            last = shown.to_owned();
            match up_to {
                Some(_) => prefixes.push(shown.to_owned()),
                None => items.push(object.resource(&self.bucket, key)),
            }
        }
        let mut told = json!({ "kind": "storage#objects" });
        // What there is none of is left away.
        let fields = told.as_object_mut().expect("an object");
        if !items.is_empty() {
            fields.insert("items".into(), Value::Array(items));
        }
        if !prefixes.is_empty() {
            fields.insert("prefixes".into(), json!(prefixes));
        }
        if let Some(next) = next {
            fields.insert("nextPageToken".into(), json!(next));
        }
        Ok(self.told(told))
    }

    fn upload(
        &self,
        buckets: &mut Buckets,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<GcsAnswer, GcsRefused> {
        self.knows(&[
            "uploadType",
            "name",
            "ifGenerationMatch",
            "ifGenerationNotMatch",
            "ifMetagenerationMatch",
            "ifMetagenerationNotMatch",
        ])?;
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let (key, facts, data) = match self.text("uploadType") {
            Some("media") => {
                let facts = Facts { content_type: Some(kind.to_owned()), ..Facts::default() };
                (self.text("name").map(str::to_owned), facts, body.clone())
            }
            Some("multipart") => {
                let Related { told, kind, data } =
                    related(kind, body).ok_or_else(|| bad("Malformed multipart body."))?;
                let name = self.text("name").or(told["name"].as_str()).map(str::to_owned);
                let facts = Facts::of(&told);
                (name, Facts { content_type: facts.content_type.clone().or(kind), ..facts }, data)
            }
            _ => return Err(bad("Invalid value for uploadType")),
        };
        let key = key.ok_or_else(|| (400, "required", "Required parameter: name".to_owned()))?;
        small(&facts)?;
        self.conditions("", buckets.of(&self.bucket)?.get(&key))?;
        let object = buckets.store(&self.bucket, &key, data, facts, None)?;
        Ok(self.told(object.resource(&self.bucket, &key)))
    }

    fn get(&self, buckets: &mut Buckets, key: &str, headers: &HeaderMap) -> Result<GcsAnswer, GcsRefused> {
        self.knows(&[
            "generation",
            "ifGenerationMatch",
            "ifGenerationNotMatch",
            "ifMetagenerationMatch",
            "ifMetagenerationNotMatch",
        ])?;
        let object = self.named(buckets.of(&self.bucket)?, key)?;
        self.conditions("", Some(object))?;
        if self.text("alt") != Some("media") {
            return Ok(self.told(object.resource(&self.bucket, key)));
        }
        media(object, headers)
    }

    fn patch(&self, buckets: &mut Buckets, key: &str, body: &Bytes) -> Result<GcsAnswer, GcsRefused> {
        self.knows(&["generation", "ifGenerationMatch", "ifMetagenerationMatch"])?;
        let told = parsed(body)?;
        let object = self.named(buckets.of(&self.bucket)?, key)?;
        self.conditions("", Some(object))?;
        let mut facts = object.facts.clone();
        if let Some(kind) = told["contentType"].as_str() {
            facts.content_type = Some(kind.to_owned());
        }
        match &told["metadata"] {
            Value::Object(changes) => {
                for (name, value) in changes {
                    match value.as_str() {
                        Some(value) => drop(facts.metadata.insert(name.clone(), value.to_owned())),
                        None => drop(facts.metadata.remove(name)),
                    }
                }
            }
            Value::Null if told.get("metadata").is_some() => facts.metadata.clear(),
            _ => {}
        }
        small(&facts)?;
        object.facts = facts;
        object.metageneration += 1;
        object.updated = now();
        Ok(self.told(object.resource(&self.bucket, key)))
    }

    fn delete(&self, buckets: &mut Buckets, key: &str) -> Result<GcsAnswer, GcsRefused> {
        self.knows(&["generation", "ifGenerationMatch", "ifMetagenerationMatch"])?;
        let objects = buckets.of(&self.bucket)?;
        let object = self.named(objects, key)?;
        self.conditions("", Some(object))?;
        objects.remove(key);
        Ok(answer(204, Bytes::new()))
    }

    fn compose(&self, buckets: &mut Buckets, key: &str, body: &Bytes) -> Result<GcsAnswer, GcsRefused> {
        self.knows(&["ifGenerationMatch", "ifMetagenerationMatch"])?;
        let told = parsed(body)?;
        let sources = told["sourceObjects"].as_array().filter(|sources| !sources.is_empty());
        let sources = sources.ok_or_else(|| bad("You must provide at least one source component."))?;
        if sources.len() > COMPOSE_MAX {
            let count = sources.len();
            return Err(bad(format!(
                "The number of source components provided ({count}) exceeds the maximum ({COMPOSE_MAX})"
            )));
        }
        let objects = buckets.of(&self.bucket)?;
        let (mut data, mut components) = (Vec::new(), 0);
        for source in sources {
            let name = source["name"].as_str().unwrap_or_default();
            let object = objects.get(name).ok_or_else(|| no_such(&self.bucket, name))?;
            let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
            if number(&source["generation"]).is_some_and(|generation| generation != object.generation) {
                return Err(no_such(&self.bucket, name));
            }
            data.extend_from_slice(&object.data);
            components += object.components.unwrap_or(1);
        }
        self.conditions("", objects.get(key))?;
        let facts = Facts::of(&told["destination"]);
        small(&facts)?;
        let object = buckets.store(&self.bucket, key, data.into(), facts, Some(components))?;
        Ok(self.told(object.resource(&self.bucket, key)))
    }

    fn rewrite(
        &self,
        buckets: &mut Buckets,
        from: &str,
        (bucket, to): (&str, &str),
        body: &Bytes,
    ) -> Result<GcsAnswer, GcsRefused> {
        self.knows(&[
            "sourceGeneration",
            "ifSourceGenerationMatch",
            "ifSourceMetagenerationMatch",
            "ifGenerationMatch",
            "ifMetagenerationMatch",
            "maxBytesRewrittenPerCall",
            "rewriteToken",
        ])?;
        if self.number("maxBytesRewrittenPerCall")?.is_some_and(|most| most == 0 || most % (1 << 20) > 0) {
            return Err(bad("maxBytesRewrittenPerCall must be an integral multiple of 1 MiB"));
        }
        let source = buckets.of(&self.bucket)?.get(from).ok_or_else(|| no_such(&self.bucket, from))?;
        self.conditions("Source", Some(source))?;
        let source = source.clone();
        self.conditions("", buckets.of(bucket)?.get(to))?;
        let size = source.data.len().to_string();
        match self.text("rewriteToken") {
            None if bucket.starts_with("moving") => {
                buckets.rewrites += 1;
                return Ok(self.told(json!({
                    "kind": "storage#rewriteResponse",
                    "totalBytesRewritten": "0",
                    "objectSize": size,
                    "done": false,
                    "rewriteToken": format!("{to}-{}", buckets.rewrites),
                })));
            }
            Some(token) if token != format!("{to}-{}", buckets.rewrites) => {
                return Err(bad("Invalid rewriteToken"));
            }
            _ => {}
        }
        // A body is all that the copy has besides the bytes.
        let facts = match body.is_empty() {
            true => source.facts,
            false => Facts::of(&parsed(body)?),
        };
        small(&facts)?;
        let copy = buckets.store(bucket, to, source.data, facts, source.components)?;
        Ok(self.told(json!({
            "kind": "storage#rewriteResponse",
            "totalBytesRewritten": size,
            "objectSize": size,
            "done": true,
            "resource": copy.resource(bucket, to),
        })))
    }
}

fn small(facts: &Facts) -> Result<(), GcsRefused> {
    let bytes: usize = facts.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > METADATA_MAX {
        return Err(bad(format!("The metadata of the object exceeds the limit of {METADATA_MAX} bytes.")));
    }
    Ok(())
}

/// `multipart/related` of a resource and bytes.
struct Related {
    told: Value,
    /// Of the bytes, where their part says one.
    kind: Option<String>,
    data: Bytes,
}

fn related(kind: &str, body: &Bytes) -> Option<Related> {
    let boundary = kind.strip_prefix("multipart/related")?.split_once("boundary=")?.1;
    let boundary = boundary.split(';').next()?.trim().trim_matches(['"', '\'']);
    let find = |from: usize, what: &[u8]| {
        let found = body[from..].windows(what.len()).position(|window| window == what)?;
        Some(from + found)
    };
    let first = format!("--{boundary}\r\n");
    body.starts_with(first.as_bytes()).then_some(())?;
    let json = find(first.len(), b"\r\n\r\n")? + 4;
    let between = format!("\r\n--{boundary}\r\n");
    let end = find(json, between.as_bytes())?;
    let data = find(end + between.len(), b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&body[end + between.len()..data]).to_ascii_lowercase();
    let kind = head.lines().find_map(|line| line.strip_prefix("content-type:"));
    let kind = kind.map(|kind| kind.trim().to_owned());
    let last = format!("\r\n--{boundary}--");
    let rest = &body[..];
    let rest = rest.strip_suffix(b"\r\n").unwrap_or(rest).strip_suffix(last.as_bytes())?;
    let told = serde_json::from_slice(&body[json..end]).ok()?;
    Some(Related { told, kind, data: body.slice(data..rest.len()) })
}

fn media(object: &GcsObject, headers: &HeaderMap) -> Result<GcsAnswer, GcsRefused> {
    let size = object.data.len() as u64;
    let asked = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
    let range = asked.and_then(|range| {
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        let last = if last.is_empty() { u64::MAX } else { last.parse().ok()? };
        Some((first.parse::<u64>().ok()?, last))
    });
    let (status, data, told) = match range {
        Some((first, _)) if first >= size => {
            return Err((
                416,
                "requestedRangeNotSatisfiable",
                "The requested range cannot be satisfied.".into(),
            ));
        }
        Some((first, last)) => {
            let last = last.min(size - 1);
            let data = object.data.slice(first as usize..=last as usize);
            (206, data, Some(format!("bytes {first}-{last}/{size}")))
        }
        None => (200, object.data.clone(), None),
    };
    let mut answer = answer(status, data);
    let text = |text: String| HeaderValue::from_str(&text).expect("plain text");
    let headers = answer.headers_mut();
    let kind = object.facts.content_type.clone().unwrap_or_else(|| "application/octet-stream".into());
    headers.insert(header::CONTENT_TYPE, text(kind));
    headers.insert("x-goog-generation", text(object.generation.to_string()));
    headers.insert("x-goog-metageneration", text(object.metageneration.to_string()));
    headers.insert("x-goog-stored-content-length", text(size.to_string()));
    headers.extend(told.map(|told| (header::CONTENT_RANGE, text(told))));
    Ok(answer)
}

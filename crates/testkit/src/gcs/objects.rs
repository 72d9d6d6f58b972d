//! Buckets and the objects in them, and which generation each has.

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};

use super::GcsRefused;

pub fn now() -> DateTime<Utc> {
    SystemTime::now().into()
}

pub type Objects = BTreeMap<String, GcsObject>;

#[derive(Default)]
pub struct Buckets {
    by_name: HashMap<String, GcsBucketState>,
    /// Each is larger than all before.
    last_generation: u64,
    /// Copies that are under way.
    pub rewrites: u64,
}

struct GcsBucketState {
    objects: Objects,
    created: DateTime<Utc>,
}

#[derive(Clone)]
pub struct GcsObject {
    pub data: Bytes,
    pub generation: u64,
    pub metageneration: u64,
    pub created: DateTime<Utc>,
    pub updated: DateTime<Utc>,
    pub facts: Facts,
    /// Of a composed one: how many it was made of.
    pub components: Option<u64>,
}

/// What users store with an object.
#[derive(Clone, Default)]
pub struct Facts {
    pub content_type: Option<String>,
    pub content_encoding: Option<String>,
    pub metadata: BTreeMap<String, String>,
}

impl Facts {
    /// Of an object's resource.
    pub fn of(told: &Value) -> Facts {
        let text = |name: &str| told[name].as_str().map(str::to_owned);
        let metadata = told["metadata"].as_object().into_iter().flatten();
        Facts {
            content_type: text("contentType"),
            content_encoding: text("contentEncoding"),
            metadata: metadata
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect(),
        }
    }
}

fn time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn missing() -> GcsRefused {
    (404, "notFound", "The specified bucket does not exist.".to_owned())
}

impl Buckets {
    pub fn make(&mut self, name: &str) -> Result<(), GcsRefused> {
        if self.by_name.contains_key(name) {
            return Err((
                409,
                "conflict",
                "Your previous request to create the named bucket succeeded".into(),
            ));
        }
        self.by_name.insert(name.to_owned(), GcsBucketState { objects: Objects::new(), created: now() });
        Ok(())
    }

    pub fn of(&mut self, name: &str) -> Result<&mut Objects, GcsRefused> {
        self.by_name.get_mut(name).map(|bucket| &mut bucket.objects).ok_or_else(missing)
    }

    /// What is told of a bucket itself.
    pub fn bucket(&self, name: &str) -> Result<Value, GcsRefused> {
        let created = self.by_name.get(name).ok_or_else(missing)?.created;
        Ok(json!({ "kind": "storage#bucket", "id": name, "name": name, "timeCreated": time(created) }))
    }

    /// In place of what was there.
    pub fn store(
        &mut self,
        bucket: &str,
        key: &str,
        data: Bytes,
        facts: Facts,
        components: Option<u64>,
    ) -> Result<GcsObject, GcsRefused> {
        let bytes = key.len();
        if bytes == 0 || bytes > 1024 || key.contains(['\r', '\n']) || matches!(key, "." | "..") {
            return Err((400, "invalid", "The specified object name is not valid.".into()));
        }
        let now = now();
        let generation = (now.timestamp_micros() as u64).max(self.last_generation + 1);
        self.last_generation = generation;
        let object =
            GcsObject { data, generation, metageneration: 1, created: now, updated: now, facts, components };
        self.of(bucket)?.insert(key.to_owned(), object.clone());
        Ok(object)
    }
}

impl GcsObject {
    pub fn resource(&self, bucket: &str, key: &str) -> Value {
        let mut told = json!({
            "kind": "storage#object",
            "id": format!("{bucket}/{key}/{}", self.generation),
            "name": key,
            "bucket": bucket,
            "generation": self.generation.to_string(),
            "metageneration": self.metageneration.to_string(),
            "storageClass": "STANDARD",
            "size": self.data.len().to_string(),
            "timeCreated": time(self.created),
            "updated": time(self.updated),
            "etag": format!("{}/{}", self.generation, self.metageneration),
        });
        let fields = told.as_object_mut().expect("an object");
        if let Some(kind) = &self.facts.content_type {
            fields.insert("contentType".into(), json!(kind));
        }
        if let Some(encoding) = &self.facts.content_encoding {
            fields.insert("contentEncoding".into(), json!(encoding));
        }
        if !self.facts.metadata.is_empty() {
            fields.insert("metadata".into(), json!(self.facts.metadata));
        }
        if let Some(count) = self.components {
            fields.insert("componentCount".into(), json!(count));
        }
        told
    }
}

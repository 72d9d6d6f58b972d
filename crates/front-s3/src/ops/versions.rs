//! ListObjectVersions, as of a bucket without versions: each object has one, named `null`.

use s3s::dto::{ListObjectVersionsInput, ListObjectVersionsOutput, ObjectVersion, ObjectVersionStorageClass};

use super::list::{ListQuery, encoded, from_marker};
use super::{RequestContext, require_null_version};
use crate::errors::{S3Result, invalid};

/// The id of an object's only version.
const NULL: &str = "null";

impl RequestContext {
    pub async fn list_versions(&self, input: ListObjectVersionsInput) -> S3Result<ListObjectVersionsOutput> {
        let version = input.version_id_marker.as_deref().filter(|version| !version.is_empty());
        require_null_version(version)?;
        if version.is_some() && input.key_marker.is_none() {
            return Err(invalid("a version-id-marker needs a key-marker"));
        }
        let delimiter = input.delimiter.filter(|delimiter| !delimiter.is_empty());
        let marker = input.key_marker.unwrap_or_default();
        let from = from_marker(&marker, input.prefix.as_deref(), delimiter.as_deref());
        let query = ListQuery {
            bucket: input.bucket,
            prefix: input.prefix,
            delimiter,
            encoding: input.encoding_type,
            max_keys: input.max_keys,
            from,
            with_owner: true,
        };
        let listed = self.list(&query).await?;
        let encoded = |text: String| encoded(&query, text);
        let last = listed.next.as_ref().map(|(_, last)| last.clone());
        // A page that ends with a common prefix has no last version.
        let is_version = last.is_some()
            && listed.contents.last().is_some_and(|object| object.key == last.clone().map(encoded));
        let versions = listed.contents.into_iter().map(|object| ObjectVersion {
            key: object.key,
            version_id: Some(NULL.to_owned()),
            is_latest: Some(true),
            e_tag: object.e_tag,
            size: object.size,
            last_modified: object.last_modified,
            owner: object.owner,
            storage_class: Some(ObjectVersionStorageClass::from_static(ObjectVersionStorageClass::STANDARD)),
            ..ObjectVersion::default()
        });
        Ok(ListObjectVersionsOutput {
            versions: Some(versions.collect()),
            common_prefixes: Some(listed.prefixes),
            name: Some(query.bucket.clone()),
            prefix: Some(encoded(query.prefix.clone().unwrap_or_default())),
            delimiter: query.delimiter.clone().map(encoded),
            key_marker: Some(encoded(marker)),
            version_id_marker: Some(version.unwrap_or_default().to_owned()),
            next_key_marker: last.map(encoded),
            next_version_id_marker: is_version.then(|| NULL.to_owned()),
            is_truncated: Some(listed.next.is_some()),
            max_keys: Some(listed.max_keys),
            encoding_type: query.encoding.clone(),
            ..ListObjectVersionsOutput::default()
        })
    }
}

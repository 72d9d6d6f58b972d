//! DeleteObject and DeleteObjects.
//!
//! S3 has no empty directories: a directory is removed with its last object, whoever made it. Deleting a key that
//! does not exist succeeds.

use http::HeaderMap;
use s3s::dto::{
    DeleteObjectInput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, ETagCondition,
    Error as Failure, ObjectIdentifier,
};
use s3s::{S3Error, S3ErrorCode};
use types::ErrorKind;

use super::{RequestContext, require_null_version};
use crate::access_keys::Right;
use crate::errors::{S3Result, s3_error};
use crate::object::Conditions;
use crate::resolve::{self, OpenBucket};
use crate::response_xml::message_of;

/// The most keys of one request: S3's own limit.
const KEYS_MAX: usize = 1000;

impl RequestContext {
    pub async fn delete_object(&self, input: DeleteObjectInput, headers: &HeaderMap) -> S3Result<()> {
        require_null_version(input.version_id.as_deref())?;
        let bucket = self.bucket(&input.bucket, Right::Write).await?;
        let conditions = Conditions {
            if_size: input.if_match_size,
            if_modified_at: input.if_match_last_modified_time,
            ..Conditions::of_headers(headers)?
        };
        self.delete(&bucket, &input.key, &conditions).await
    }

    pub async fn delete_objects(&self, input: DeleteObjectsInput) -> S3Result<DeleteObjectsOutput> {
        let bucket = self.bucket(&input.bucket, Right::Write).await?;
        let asked = input.delete;
        if asked.objects.is_empty() || asked.objects.len() > KEYS_MAX {
            return Err(S3ErrorCode::MalformedXML.into());
        }
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for ObjectIdentifier { key, e_tag, last_modified_time, size, version_id } in asked.objects {
            let conditions = Conditions {
                if_match: e_tag.map(ETagCondition::ETag),
                if_size: size,
                if_modified_at: last_modified_time,
                ..Conditions::default()
            };
            let done = match require_null_version(version_id.as_deref()) {
                Ok(()) => self.delete(&bucket, &key, &conditions).await,
                Err(e) => Err(e),
            };
            match done {
                Ok(()) => {
                    deleted.push(DeletedObject { key: Some(key), version_id, ..DeletedObject::default() })
                }
                Err(e) => errors.push(failure(key, version_id, &e)),
            }
        }
        let is_quiet = asked.quiet.unwrap_or(false);
        Ok(DeleteObjectsOutput {
            deleted: Some(if is_quiet { Vec::new() } else { deleted }),
            errors: Some(errors),
            ..DeleteObjectsOutput::default()
        })
    }

    async fn delete(&self, bucket: &OpenBucket, key: &str, conditions: &Conditions) -> S3Result<()> {
        let key = resolve::parse_key(key)?;
        let (vfs, caller) = (&self.shared.vfs, self.caller());
        let dir = match resolve::find_dir(vfs, caller, bucket.root.id, &key.dirs).await {
            Ok(dir) => dir,
            Err(e) if is_absent(&e) => return absent(conditions),
            Err(e) => return Err(s3_error(e)),
        };
        let _lock = self.shared.locks.lock(dir, &key.name).await;
        let Some(object) = self.existing(bucket, &key).await? else { return absent(conditions) };
        self.check_conditions(bucket, &key, conditions).await?;
        let removed = if key.is_dir {
            vfs.rmdir(caller, dir, &key.name).await
        } else {
            vfs.remove(caller, dir, &key.name).await
        };
        match removed {
            Ok(_) => {
                let (shared, id) = (self.shared.clone(), object.node.id);
                tokio::task::spawn_blocking(move || shared.metadata.forget(id));
            }
            Err(e) if is_absent(&e) => {}
            // The directory still has keys below it; as an object it was never there.
            Err(e) if key.is_dir && e.kind() == ErrorKind::NotEmpty => {}
            Err(e) => return Err(s3_error(e)),
        }
        self.remove_empty(bucket, &key).await;
        Ok(())
    }
}

fn is_absent(error: &types::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale | ErrorKind::NotADirectory)
}

fn absent(conditions: &Conditions) -> S3Result<()> {
    if conditions.need_one() { Err(S3ErrorCode::NoSuchKey.into()) } else { Ok(()) }
}

fn failure(key: String, version_id: Option<String>, error: &S3Error) -> Failure {
    Failure {
        key: Some(key),
        code: Some(error.code().as_str().to_owned()),
        message: Some(error.message().unwrap_or_else(|| message_of(error.code().as_str())).to_owned()),
        version_id,
    }
}

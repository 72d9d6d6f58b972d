//! Files that come in parts: each is an upload at the store, and its parts are the store's own. So a part is stored once,
//! where it stays, and the file is made by the completion of the upload, without a copy. Nothing of it is kept here: what
//! must be known of the upload is in the [`PartedFile`], which its owner keeps.

use ::origin::{Draft, Identity, PartReceipt, PartSource, PartedFile, Reference};
use serde::{Deserialize, Serialize};
use types::{ByteRange, Error, ErrorKind, Name, Result, SetAttr};

use crate::attributes;
use crate::change::REGULAR;
use crate::keys::{KeyBase, KeyKind, child};
use crate::object_writer::ObjectWriter;
use crate::origin::ObjectOrigin;
use crate::store::{CopySource, Metadata, MultipartUpload, UploadedPart};

/// What is kept of an upload.
#[derive(Deserialize, Serialize)]
struct KeptUpload {
    key: String,
    id: String,
    metadata: Metadata,
}

impl KeptUpload {
    fn encode(upload: MultipartUpload) -> Result<PartedFile> {
        let MultipartUpload { key, id, metadata } = upload;
        let bytes = serde_json::to_vec(&KeptUpload { key, id, metadata });
        let bytes = bytes.map_err(|e| Error::new(ErrorKind::Io, "note", "an upload").with_source(e))?;
        Ok(PartedFile(bytes.into()))
    }

    /// The note comes from a disk or from others: an upload elsewhere in the bucket is not for us to change, and without
    /// an id a request would be one for the object itself.
    fn decode(file: &PartedFile, base: &KeyBase) -> Result<MultipartUpload> {
        let kept: KeptUpload = serde_json::from_slice(&file.0).map_err(|e| {
            Error::new(ErrorKind::InvalidArgument, "read", "what was noted of an upload").with_source(e)
        })?;
        let is_ours = kept.key.strip_prefix(base.as_str()).is_some_and(|path| !path.is_empty());
        if !is_ours || kept.id.is_empty() {
            let context = format!("{:?}, which is no upload of this part of the bucket", kept.key);
            return Err(Error::new(ErrorKind::InvalidArgument, "use what was noted of", context));
        }
        Ok(MultipartUpload { key: kept.key, id: kept.id, metadata: kept.metadata })
    }
}

impl ObjectOrigin {
    pub(crate) async fn begin_parted(
        &self,
        dir: &Reference,
        path: &[Name],
        set: &SetAttr,
    ) -> Result<Option<PartedFile>> {
        let Some((name, dirs)) = path.split_last().filter(|_| self.store.keeps_parts()) else {
            return Ok(None);
        };
        let mut at = dir.clone();
        for dir in dirs {
            at = child(&self.base, &at, dir, KeyKind::Directory)?;
        }
        let file = child(&self.base, &at, name, KeyKind::File)?;
        let (mark, value) = attributes::write_mark(self.config.dialect)?;
        let mut metadata = self.metadata(REGULAR, set, None);
        metadata.insert(mark, value);
        let upload = self.store.begin(&self.base.key(&file)?, &metadata).await?;
        KeptUpload::encode(upload).map(Some)
    }

    pub(crate) async fn store_part_of(
        &self,
        file: &PartedFile,
        number: u32,
        source: &PartSource,
    ) -> Result<String> {
        let upload = KeptUpload::decode(file, &self.base)?;
        let stored = match source {
            PartSource::Given(bytes) => {
                let _turn = self.pacer.acquire().await;
                self.store.part(&upload, number, bytes.clone()).await?
            }
            PartSource::Of(file) => {
                let of = self.stat_object(file).await?.ok_or_else(|| self.gone("copy", file))?;
                let key = self.base.key(file)?;
                let from = CopySource { key: &key, etag: &of.etag, size: of.size };
                let _turn = self.pacer.acquire().await;
                match of.size {
                    // A range has a byte at least.
                    0 => self.store.part(&upload, number, bytes::Bytes::new()).await?,
                    size => self.store.part_of(&upload, number, from, ByteRange::new(0, size)).await?,
                }
            }
        };
        Ok(stored.etag)
    }

    pub(crate) fn draft_of_parted(
        &self,
        file: &PartedFile,
        (dir, name): (&Reference, &Name),
        parts: &[PartReceipt],
    ) -> Result<Draft> {
        let upload = KeptUpload::decode(file, &self.base)?;
        let file = child(&self.base, dir, name, KeyKind::File)?;
        if self.base.key(&file)? != upload.key {
            let context = self.place(&file);
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "assemble what was begun elsewhere as",
                context,
            ));
        }
        let dialect = self.config.dialect;
        let mark = attributes::mark_name(dialect).to_owned();
        let Some(value) = upload.metadata.get(&mark).cloned() else {
            let context = "an upload that is not ours";
            return Err(Error::new(ErrorKind::InvalidArgument, "assemble", context));
        };
        let size = parts.iter().map(|part| part.size).sum();
        let stored = parts
            .iter()
            .map(|part| UploadedPart { number: part.number, etag: part.receipt.clone() })
            .collect();
        let times = attributes::time_names(dialect);
        let writer = ObjectWriter::assembled(upload, stored, size, (mark, value), times);
        let identity = Identity(file.0.clone());
        Ok(Draft { reference: self.drafts.add_assembled(file, writer), identity })
    }

    pub(crate) async fn drop_parted(&self, file: &PartedFile) -> Result<()> {
        self.store.abort(&KeptUpload::decode(file, &self.base)?).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::Dialect;

    fn refused(file: &PartedFile, prefix: &str) -> ErrorKind {
        KeptUpload::decode(file, &KeyBase::new(prefix, Dialect::S3)).expect_err("refused").kind()
    }

    #[test]
    fn what_is_noted_of_an_upload_is_read_back_and_other_bytes_are_refused() {
        let metadata = Metadata::from([("a".to_owned(), "b\"\n".to_owned())]);
        let upload = MultipartUpload { key: "d/\u{1}\n\"x".into(), id: "id&/+".into(), metadata };
        let kept = KeptUpload::encode(upload.clone()).expect("noted");
        for prefix in ["", "d"] {
            let base = KeyBase::new(prefix, Dialect::S3);
            assert_eq!(KeptUpload::decode(&kept, &base).expect("read"), upload);
        }
        for end in 0..kept.0.len() {
            let cut = PartedFile(kept.0.slice(..end));
            assert_eq!(refused(&cut, ""), ErrorKind::InvalidArgument);
        }
    }

    #[test]
    fn a_note_of_an_upload_elsewhere_or_of_none_is_refused() {
        let metadata = Metadata::new();
        for (key, id, prefix) in
            [("other/x", "id", "d"), ("dx", "id", "d"), ("d/", "id", "d"), ("", "id", ""), ("d/x", "", "d")]
        {
            let upload = MultipartUpload { key: key.into(), id: id.into(), metadata: metadata.clone() };
            let kept = KeptUpload::encode(upload).expect("noted");
            assert_eq!(refused(&kept, prefix), ErrorKind::InvalidArgument, "{key:?} {id:?} in {prefix:?}");
        }
    }
}

//! What an origin can never take is refused at the call: before the journal has it, or any byte of it is on its way.

use namespace::New;
use types::{Error, ErrorKind, FileId, JunctionId, Name, Result};

use crate::{Node, Vfs};

impl Vfs {
    /// Anything may be changed there at all. One that was read-only is asked again before anybody is refused.
    pub(crate) async fn demand_takes_changes(&self, junction: JunctionId) -> Result<()> {
        let is_refused = self.namespace.limits_of(junction).await?.read_only;
        if is_refused && self.namespace.limits_of_now(junction).await?.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "change", "an origin that is read-only"));
        }
        Ok(())
    }

    /// The origin can have files that end there.
    pub(crate) async fn demand_takes_size(&self, file: &Node, end: u64) -> Result<()> {
        self.demand_takes_changes(file.junction).await?;
        self.demand_size(file.junction, end).await
    }

    async fn demand_size(&self, junction: JunctionId, end: u64) -> Result<()> {
        match self.namespace.limits_of(junction).await?.file_size_max {
            Some(max) if end > max => {
                let context = format!("{end} bytes: {max} is the most that the origin can have");
                Err(Error::new(ErrorKind::FileTooLarge, "make a file of", context))
            }
            _ => Ok(()),
        }
    }

    /// The origin can have a new object of this kind.
    pub(crate) async fn demand_takes_new(&self, parent: &Node, new: &New) -> Result<()> {
        self.demand_takes_changes(parent.junction).await?;
        let limits = self.namespace.limits_of(parent.junction).await?;
        match new {
            New::File { set, .. } => self.demand_size(parent.junction, set.size.unwrap_or(0)).await,
            New::Special { .. } if limits.no_special_files => {
                Err(Error::new(ErrorKind::NotSupported, "make a special file at", "this kind of origin"))
            }
            New::Link { .. } if limits.links_max == Some(1) => {
                Err(Error::new(ErrorKind::NotSupported, "link at", "this kind of origin"))
            }
            _ => Ok(()),
        }
    }

    /// A file can have so many names.
    pub(crate) async fn demand_takes_links(&self, file: &Node, links: u32) -> Result<()> {
        match self.namespace.limits_of(file.junction).await?.links_max {
            Some(max) if links > max => Err(Error::new(ErrorKind::TooManyLinks, "link", file.id)),
            _ => Ok(()),
        }
    }

    /// The origin can have this name, and the path that it makes, as clients see the tree now.
    pub(crate) async fn demand_takes_name(&self, dir: &Node, name: &Name, is_dir: bool) -> Result<()> {
        let limits = self.namespace.limits_of(dir.junction).await?;
        if limits.name_max.is_some_and(|max| name.as_bytes().len() > max as usize) {
            return Err(Error::new(ErrorKind::NameTooLong, "name", name));
        }
        self.namespace.demand_path(dir.junction, &self.path_at_origin(dir, name)?, is_dir)
    }

    /// Below the junction's root; of a path that is longer than any can be, only its end.
    fn path_at_origin(&self, dir: &Node, name: &Name) -> Result<Vec<u8>> {
        let places = self.places();
        let root: FileId = self.namespace.root_of(dir.junction)?;
        let (mut parts, mut length, mut at) = (vec![name.clone()], name.as_bytes().len(), dir.id);
        while at != root && length <= origin::REFERENCE_MAX {
            let Some((above, Some(name))) = places.place_of(at) else { break };
            length += name.as_bytes().len() + 1;
            parts.push(name);
            at = above;
        }
        parts.reverse();
        Ok(parts.iter().map(Name::as_bytes).collect::<Vec<_>>().join(&b'/'))
    }
}

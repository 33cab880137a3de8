//! Paths in a container's file system, seen from outside: its links, which the image's author may have pointed anywhere, never lead out of
//! it.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, openat, openat2};

/// Root of a container's file system.
pub(super) struct Root {
    folder: OwnedFd,
}

impl Root {
    pub(super) fn open(path: &Path) -> Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Root { folder: openat(rustix::fs::CWD, path, flags, Mode::empty())? })
    }

    /// Opens a regular file for reading.
    pub(super) fn file(&self, path: &Path) -> Result<File> {
        // A pipe would block the hook.
        if FileType::from_raw_mode(rustix::fs::fstat(self.place(path)?)?.st_mode) != FileType::RegularFile {
            return Err(Error::new(ErrorKind::InvalidInput, "no regular file"));
        }
        Ok(File::from(self.at(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?))
    }

    /// Opens a file or folder to be mounted on.
    pub(super) fn place(&self, path: &Path) -> Result<OwnedFd> {
        self.at(path, OFlags::PATH)
    }

    fn at(&self, path: &Path, flags: OFlags) -> Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Ok(openat2(&self.folder, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)?)
    }

    /// Path of a file, with links resolved.
    pub(super) fn resolved(&self, path: &Path) -> Result<PathBuf> {
        let (root, file) = (link_to(&self.folder)?, link_to(&self.place(path)?)?);
        let within = file.strip_prefix(&root).map_err(|_| Error::other("it lies outside of the container"))?;
        Ok(Path::new("/").join(within))
    }

    /// Makes an empty file, unless it exists.
    pub(super) fn make_file(&self, path: &Path) -> Result<OwnedFd> {
        if let Ok(file) = self.place(path) {
            return Ok(file);
        }
        let folder = self.place(path.parent().unwrap_or(Path::new("/")))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&folder, path.file_name().unwrap_or_default(), flags, Mode::from_raw_mode(0o644))?;
        self.place(path)
    }

    /// Makes a folder and those above it, unless they exist.
    pub(super) fn make_folder(&self, path: &Path) -> Result<OwnedFd> {
        let mut so_far = PathBuf::from("/");
        for part in path.components() {
            let Component::Normal(name) = part else { continue };
            let above = self.place(&so_far)?;
            so_far.push(name);
            if self.place(&so_far).is_err() {
                rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(0o755))?;
            }
        }
        let folder = self.place(&so_far)?;
        match FileType::from_raw_mode(rustix::fs::statat(&folder, "", AtFlags::EMPTY_PATH)?.st_mode) {
            FileType::Directory => Ok(folder),
            _ => Err(Error::new(ErrorKind::NotADirectory, "no folder")),
        }
    }
}

/// Path of an open file, which the kernel follows to the file itself.
pub(super) fn of_descriptor(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn link_to(file: &OwnedFd) -> Result<PathBuf> {
    std::fs::read_link(of_descriptor(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_of_an_image_lead_nowhere_else() {
        let place = tempfile::tempdir().unwrap();
        let image = place.path().join("image");
        std::fs::create_dir_all(image.join("usr/lib")).unwrap();
        std::fs::write(place.path().join("outside"), "outside").unwrap();
        std::fs::write(image.join("outside"), "inside").unwrap();
        std::fs::write(image.join("usr/lib/libc"), "").unwrap();
        symlink("usr/lib", image.join("lib")).unwrap();
        symlink("/outside", image.join("absolute")).unwrap();
        symlink("../../../../outside", image.join("relative")).unwrap();
        symlink("/etc", image.join("etc")).unwrap();
        let root = Root::open(&image).unwrap();
        for link in ["/absolute", "/relative", "/../outside"] {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut root.file(Path::new(link)).unwrap(), &mut text).unwrap();
            assert_eq!(text, "inside", "{link}");
        }
        assert_eq!(root.resolved(Path::new("/lib/libc")).unwrap(), Path::new("/usr/lib/libc"));
        assert!(root.file(Path::new("/etc/passwd")).is_err());
        assert!(root.make_file(Path::new("/etc/ld.so.preload")).is_err(), "the link leads nowhere");
        assert!(root.make_folder(Path::new("/absolute/below")).is_err());
        root.make_file(Path::new("/lib/new")).unwrap();
        root.make_folder(Path::new("/a/b/c")).unwrap();
        root.make_folder(Path::new("/a/b/c")).unwrap();
        assert!(image.join("usr/lib/new").is_file() && image.join("a/b/c").is_dir());
        assert!(root.make_folder(Path::new("/lib/new")).is_err());
        assert!(root.file(Path::new("/lib")).is_err());
    }
}

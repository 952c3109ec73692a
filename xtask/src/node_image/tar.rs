//! The archive from which an image is imported: folders, files and links that root owns, in the format ustar, which
//! every tar reads.

use std::io::{self, Write};

/// Writes an archive entry by entry.
pub(super) struct Archive<W>(W);

impl<W: Write> Archive<W> {
    pub(super) fn new(to: W) -> Self {
        Self(to)
    }

    pub(super) fn folder(&mut self, path: &str) -> io::Result<()> {
        self.header(path, b'5', 0o755, 0, "")
    }

    pub(super) fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.header(path, b'2', 0o777, 0, target)
    }

    pub(super) fn file(&mut self, path: &str, executable: bool, content: &[u8]) -> io::Result<()> {
        let mode = if executable { 0o755 } else { 0o644 };
        self.header(path, b'0', mode, content.len() as u64, "")?;
        self.0.write_all(content)?;
        let rest = content.len() % 512;
        self.0.write_all(&[0; 512][..(512 - rest) % 512])
    }

    /// Writes the end of the archive: two empty blocks.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.0.write_all(&[0; 1024])?;
        self.0.flush()
    }

    fn header(&mut self, path: &str, kind: u8, mode: u32, size: u64, target: &str) -> io::Result<()> {
        let mut header = [0; 512];
        let mut put = |at: usize, room: usize, text: &str| match header.get_mut(at..at + text.len()) {
            Some(field) if text.len() <= room => {
                field.copy_from_slice(text.as_bytes());
                Ok(())
            }
            _ => Err(io::Error::other(format!("{text:?} is too long for an archive"))),
        };
        put(0, 100, path)?;
        put(100, 7, &format!("{mode:07o}"))?;
        put(108, 7, "0000000")?; // user
        put(116, 7, "0000000")?; // group
        put(124, 11, &format!("{size:011o}"))?;
        put(136, 11, "00000000000")?; // the same bytes whenever it is made
        put(157, 100, target)?;
        put(257, 8, "ustar\u{0}00")?;
        header[156] = kind;
        // In the checksum, its own field counts as blanks.
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\u{0}").as_bytes());
        self.0.write_all(&header)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::Archive;

    #[test]
    fn tar_reads_it() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.folder("bin/").unwrap();
        archive.file("bin/busybox", true, &[7; 513]).unwrap();
        archive.file("empty", false, b"").unwrap();
        archive.link("bin/sh", "busybox").unwrap();
        assert!(archive.link(&"long".repeat(30), "x").is_err());
        archive.finish().unwrap();
        let mut tar = Command::new("tar")
            .args(["--list", "--verbose", "--numeric-owner", "--file", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        tar.stdin.take().unwrap().write_all(&bytes).unwrap();
        let output = tar.wait_with_output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let reported: Vec<_> = lines
            .iter()
            .map(|line| (line[0], line[1], line[2], line[5]))
            .collect();
        assert_eq!(
            reported,
            [
                ("drwxr-xr-x", "0/0", "0", "bin/"),
                ("-rwxr-xr-x", "0/0", "513", "bin/busybox"),
                ("-rw-r--r--", "0/0", "0", "empty"),
                ("lrwxrwxrwx", "0/0", "0", "bin/sh"),
            ]
        );
    }
}

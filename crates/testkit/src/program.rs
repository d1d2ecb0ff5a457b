//! Scripts that stand in for programs.

use std::{
    io::{self, Write},
    path::Path,
    process::{Command, Stdio},
};

/// Writes a script that can be run. Another process writes it: a file that this one holds open for
/// writing, be it in a child that another test is just starting, cannot be run.
///
/// # Errors
/// There is no `sh`, or it cannot write there.
pub fn write_program(path: &Path, script: &str) -> io::Result<()> {
    let mut shell = Command::new("sh")
        .args(["-c", "cat > \"$1\" && chmod +x \"$1\"", "sh"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = shell.stdin.take() {
        stdin.write_all(script.as_bytes())?;
    }
    if shell.wait()?.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("cannot write {}", path.display())))
    }
}

//! `worker`, hidden: runs the models of another process of this program, which talks to it over
//! standard input and output.

use std::{
    fs::File,
    io::{self, Read},
};

use crate::{exit::Exit, isolation};

pub(crate) fn run() -> anyhow::Result<Exit> {
    #[cfg(target_os = "linux")]
    // Also in the middle of a call that nothing here can break off. Where it cannot be asked for,
    // the end of standard input says the same a little later.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).ok();
    let (input, output) = streams()?;
    shelfscan_worker::serve(isolation::served, UntilGone(input), output)?;
    Ok(Exit::Done)
}

/// Standard input and output without buffers. What anything else prints goes to standard error from
/// here on, because a driver that greets its user on standard output would break the messages.
#[cfg(unix)]
fn streams() -> io::Result<(File, File)> {
    use std::os::fd::AsFd;

    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    nix::unistd::dup2_stdout(io::stderr())?;
    Ok((input.into(), output.into()))
}

#[cfg(windows)]
fn streams() -> io::Result<(File, File)> {
    use std::os::windows::io::AsHandle;

    let input = io::stdin().as_handle().try_clone_to_owned()?;
    let output = io::stdout().as_handle().try_clone_to_owned()?;
    Ok((input.into(), output.into()))
}

/// Standard input, whose end means that the program that started this one is gone. It is read while
/// a call is under way, and no one waits for the answer any more.
struct UntilGone(File);

impl Read for UntilGone {
    #[allow(clippy::exit, reason = "the call under way cannot be broken off")]
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let got = self.0.read(buf)?;
        if got == 0 && !buf.is_empty() {
            std::process::exit(Exit::Done as i32);
        }
        Ok(got)
    }
}

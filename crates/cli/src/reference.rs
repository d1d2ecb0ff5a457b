//! The command line reference as Markdown, made from the parser itself.

use std::fmt::{self, Write};

use clap::{Arg, ArgAction, Command};

/// The reference of a built command and all below it.
pub(crate) fn markdown(command: &Command) -> Result<String, fmt::Error> {
    let mut text = String::new();
    document(&mut text, command)?;
    Ok(text)
}

fn document(text: &mut String, command: &Command) -> fmt::Result {
    writeln!(text, "# Command line\n")?;
    writeln!(
        text,
        "Made by `shelfscan man --markdown`; a test keeps it current.\n"
    )?;
    writeln!(text, "## Exit codes\n")?;
    writeln!(text, "| Code | Meaning |\n|---|---|")?;
    for (code, meaning) in [
        (
            "0",
            "Done. Also when standard output was closed early, as by `\\| head -1`.",
        ),
        (
            "1",
            "A source failed or is incomplete, or a check such as `diff` failed. The rest is done.",
        ),
        (
            "2",
            "The command line or the configuration cannot be met. Nothing was done.",
        ),
        ("3", "Something unexpected went wrong."),
        (
            "130",
            "Interrupted. What was finished is on disk; go on with `scan --resume`.",
        ),
    ] {
        writeln!(text, "| {code} | {meaning} |")?;
    }
    writeln!(
        text,
        "\nResults go to standard output and to `--out`, words about them to standard error. Colour and a"
    )?;
    writeln!(
        text,
        "progress bar appear on a terminal only, and not with `NO_COLOR` (colour), `CI` or `TERM=dumb` set.\n"
    )?;
    page(text, command, command.get_name())
}

fn page(text: &mut String, command: &Command, path: &str) -> fmt::Result {
    writeln!(text, "## `{path}`\n")?;
    if let Some(about) = command.get_long_about().or(command.get_about()) {
        writeln!(text, "{about}\n")?;
    }
    let usage = command.clone().render_usage().to_string();
    writeln!(
        text,
        "```text\n{}\n```\n",
        usage.trim_start_matches("Usage: ")
    )?;
    let shown = |a: &&Arg| !a.is_hide_set() && !matches!(a.get_id().as_str(), "help" | "version");
    let top = !path.contains(' ');
    let mut headings: Vec<&str> = Vec::new();
    for arg in command
        .get_arguments()
        .filter(shown)
        .filter(|a| top || !a.is_global_set())
    {
        let heading = heading(arg);
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    for heading_wanted in headings {
        writeln!(text, "| {heading_wanted} | |\n|---|---|")?;
        for arg in command.get_arguments().filter(shown) {
            if heading(arg) == heading_wanted && (top || !arg.is_global_set()) {
                writeln!(text, "| {} | {} |", name(arg), help(arg))?;
            }
        }
        writeln!(text)?;
    }
    for sub in command
        .get_subcommands()
        .filter(|s| s.get_name() != "help" && !s.is_hide_set())
    {
        page(text, sub, &format!("{path} {}", sub.get_name()))?;
    }
    Ok(())
}

fn heading(arg: &Arg) -> &str {
    match arg.get_help_heading() {
        Some(heading) => heading,
        None if arg.is_positional() => "Argument",
        None => "Option",
    }
}

fn name(arg: &Arg) -> String {
    let value = || {
        let names = arg.get_value_names().unwrap_or_default();
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        names.join(" ")
    };
    if arg.is_positional() {
        return format!("`<{}>`", value());
    }
    let mut text = String::from("`");
    if let Some(short) = arg.get_short() {
        text += &format!("-{short}, ");
    }
    text += &format!("--{}", arg.get_long().unwrap_or_default());
    if matches!(arg.get_action(), ArgAction::Set | ArgAction::Append) {
        if arg.get_num_args().is_some_and(|n| n.min_values() == 0) {
            text += &format!("[={}]", value());
        } else {
            text += &format!(" <{}>", value());
        }
    }
    (text + "`").replace('|', "\\|")
}

fn help(arg: &Arg) -> String {
    let mut text = arg
        .get_long_help()
        .or(arg.get_help())
        .map(ToString::to_string)
        .unwrap_or_default();
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|v| !v.is_hide_set() && !matches!(v.get_name(), "true" | "false"))
        .map(|v| match v.get_help() {
            Some(help) => format!("`{}`: {help}", v.get_name()),
            None => format!("`{}`", v.get_name()),
        })
        .collect();
    if !values.is_empty() && arg.get_action().takes_values() {
        text += &format!(" {}", values.join(" "));
    }
    let defaults: Vec<_> = arg
        .get_default_values()
        .iter()
        .map(|v| v.to_string_lossy().into_owned())
        .collect();
    if !defaults.is_empty() && arg.get_action().takes_values() {
        text += &format!(" [default: {}]", defaults.join(","));
    }
    if let Some(env) = arg.get_env() {
        text += &format!(" [env: {}]", env.to_string_lossy());
    }
    text.replace('|', "\\|").replace('\n', " ")
}

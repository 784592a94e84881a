//! `pithead device`: profiles of devices, built in or in a user's file.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use pithead_emulate::{
    Bound, ModelError, Profile, ProfileError, Quantity, builtin, builtin_names, find, parse, parse_own, quantity_text,
};
use pithead_model::{Blame, Fault};
use serde_json::{Value, json};

use crate::error::{CliError, said};
use crate::output::{Align, Grid, Sink};

const SHOW_EXAMPLES: &str = "\
Examples:
  pithead device show smart-ssd
  pithead device show smart-ssd --toml >mine.toml        # a start for a profile of your own
  pithead device show mine.toml --json";

const VALIDATE_EXAMPLES: &str = "\
Examples:
  pithead device validate mine.toml";

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What can be done with profiles.
#[derive(Debug, Subcommand)]
pub(crate) enum DeviceCommand {
    Ls(LsArgs),
    Show(ShowArgs),
    Validate(ValidateArgs),
}

/// List the profiles that come with the program.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// One JSON object a profile
    #[arg(long)]
    json: bool,
}

/// Show a profile: every number, and where it is from.
///
/// A source is a paper with its section, "assumed" where no source has the number, or "calibrated on" with the figure of
/// a paper that it was chosen for.
#[derive(Debug, Args)]
#[command(after_help = SHOW_EXAMPLES)]
pub(crate) struct ShowArgs {
    /// A profile that comes with the program, or a file
    #[arg(value_name = "PROFILE")]
    profile: String,
    /// One JSON object
    #[arg(long, conflicts_with = "toml")]
    json: bool,
    /// The text, as a file has it
    #[arg(long)]
    toml: bool,
}

/// Check profiles of your own: what is malformed, missing or absurd, and a name that is taken, is said with its line.
#[derive(Debug, Args)]
#[command(after_help = VALIDATE_EXAMPLES)]
pub(crate) struct ValidateArgs {
    /// Files; a profile that comes with the program is checked, too
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(command: &DeviceCommand) -> Result<(), CliError> {
    match command {
        DeviceCommand::Ls(args) => ls(args),
        DeviceCommand::Show(args) => show(args),
        DeviceCommand::Validate(args) => validate(args),
    }
}

fn ls(args: &LsArgs) -> Result<(), CliError> {
    let profiles = builtin_names().into_iter().map(find).collect::<Result<Vec<_>, _>>().map_err(|error| refused(&error))?;
    let mut sink = Sink::stdout();
    if args.json {
        for profile in &profiles {
            writeln!(sink, "{}", object(profile))?;
        }
    } else {
        listed(&profiles).write(&mut sink)?;
    }
    sink.finish()
}

fn listed(profiles: &[Profile]) -> Grid {
    use Align::{Left, Right};
    let titles =
        [("profile", Left), ("cores", Right), ("clock", Right), ("inside", Right), ("link", Right), ("what it is", Left)];
    let mut grid = Grid::of(&titles);
    for profile in profiles {
        let mut row = vec![profile.name.clone()];
        match &profile.parts {
            Some(parts) => {
                let cpu = parts.cpu.as_ref();
                row.push(cpu.map_or_else(String::new, |cpu| cpu.cores.value.to_string()));
                row.push(cpu.map_or_else(String::new, |cpu| quantity_text("clock_hz", cpu.clock_hz.value)));
                row.push(quantity_text("bytes_per_s", parts.medium.bytes_per_s()));
                row.push(quantity_text("bytes_per_s", parts.link.bytes_per_s.value));
            }
            None => row.extend(vec![String::new(); titles.len() - 2]),
        }
        row.push(profile.about.clone());
        grid.push(row);
    }
    grid
}

fn show(args: &ShowArgs) -> Result<(), CliError> {
    let text = text_of(&args.profile)?;
    let profile = parse(&text).map_err(|error| refused(&error).at(&args.profile))?;
    let mut sink = Sink::stdout();
    if args.toml {
        write!(sink, "{text}")?;
    } else if args.json {
        writeln!(sink, "{}", object(&profile))?;
    } else {
        writeln!(sink, "{}: {}\n", profile.name, profile.about)?;
        shown(&profile).write(&mut sink)?;
    }
    sink.finish()
}

fn quantities(profile: &Profile) -> impl Iterator<Item = (&'static str, &'static str, &Quantity)> {
    let sections = profile.parts.iter().flat_map(|parts| parts.sections());
    sections.flat_map(|(section, quantities)| {
        let named = |(name, quantity, _): (&'static str, _, Bound)| (section, name, quantity);
        quantities.into_iter().map(named).collect::<Vec<_>>()
    })
}

fn shown(profile: &Profile) -> Grid {
    let mut grid = Grid::of(&[("quantity", Align::Left), ("value", Align::Right), ("source", Align::Left)]);
    for (section, name, quantity) in quantities(profile) {
        grid.push(vec![format!("{section}.{name}"), quantity_text(name, quantity.value), quantity.source.clone()]);
    }
    grid
}

fn object(profile: &Profile) -> Value {
    let mut object = json!({ "name": profile.name, "about": profile.about, "native": profile.parts.is_none() });
    for (section, name, quantity) in quantities(profile) {
        object[section][name] = json!({ "value": quantity.value, "source": quantity.source });
    }
    object
}

fn validate(args: &ValidateArgs) -> Result<(), CliError> {
    let mut sink = Sink::stdout();
    let mut faults = Vec::new();
    for file in &args.files {
        match checked(file) {
            Ok(profile) => {
                let numbers = quantities(&profile).count();
                let assumed = quantities(&profile).filter(|(_, _, quantity)| quantity.source.starts_with("assumed")).count();
                writeln!(sink, "{}: {}, {numbers} numbers, of which {assumed} are assumed", file.display(), profile.name)?;
            }
            Err(CliError::Fault(fault)) => faults.push(fault),
            Err(other) => return Err(other),
        }
    }
    sink.finish()?;
    said(faults)
}

/// A profile that comes with the program, or a file's, which must not be called as one of those.
fn checked(file: &Path) -> Result<Profile, CliError> {
    let parsed = match file.to_str().and_then(builtin) {
        Some(text) => parse(text),
        None => parse_own(&read(file)?),
    };
    parsed.map_err(|error| refused(&error).at(file.display()))
}

/// The text of a profile that comes with the program, or of a file.
pub(crate) fn text_of(profile: &str) -> Result<String, CliError> {
    if let Some(text) = builtin(profile) {
        return Ok(text.to_owned());
    }
    let path = Path::new(profile);
    // A name that can only be a file's is answered as one that is not there.
    let is_file = path.components().count() > 1 || path.extension().is_some();
    if is_file || path.exists() {
        return read(path);
    }
    let unknown = ProfileError::Unknown { name: profile.to_owned() };
    Err(Fault::new(Blame::User, unknown.to_string())
        .hint("`pithead device ls` says what they are; a file is named by its path")
        .into())
}

/// A profile with a model, by its name or its file. One of a file is called by its path, since the name in it may be another's.
pub(crate) fn modelled(named: &str) -> Result<Profile, CliError> {
    let profile = parse(&text_of(named)?).map_err(|error| refused(&error).at(named))?;
    match profile.parts {
        Some(_) => Ok(Profile { name: named.to_owned(), ..profile }),
        None => Err(CliError::user(ModelError::Native(profile.name).to_string())),
    }
}

fn read(path: &Path) -> Result<String, CliError> {
    let file = File::open(path).map_err(|error| CliError::file(path, error))?;
    let mut bytes = Vec::new();
    // Of a file that has no end, such as /dev/zero, nothing says so beforehand.
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| CliError::file(path, error))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(
            CliError::user(format!("a profile has at most {FILE_BYTES_MAX} bytes, and this one has more")).at(path.display())
        );
    }
    String::from_utf8(bytes).map_err(|_| CliError::user("a profile is text in UTF-8").at(path.display()))
}

/// A profile that is not right, as the user's fault.
pub(crate) fn refused(error: &ProfileError) -> CliError {
    let fault = Fault::new(Blame::User, error.to_string());
    match error {
        ProfileError::Line { .. } => {
            fault.hint("`pithead device show smart-ssd --toml` shows a profile as it should be").into()
        }
        ProfileError::Unknown { .. } => fault.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(grid: &Grid) -> String {
        let mut out = Vec::new();
        grid.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_profile_is_shown_number_by_number() {
        let shown = text(&shown(&find("smart-ssd").unwrap()));
        assert!(shown.contains("medium.bus_bytes_per_s"), "{shown}");
        assert!(shown.contains("1.56 GB/s | Do et al. 2013, table 1"), "{shown}");
        assert!(object(&find("native").unwrap())["native"].as_bool().unwrap());
    }

    #[test]
    fn a_file_that_is_wrong_is_refused_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mine.toml");
        let right = &builtin("newport").unwrap().replace("name = \"newport\"", "name = \"mine\"");
        std::fs::write(&file, right).unwrap();
        validate(&ValidateArgs { files: vec![file.clone()] }).unwrap();
        std::fs::write(&file, right.replace("poll_s", "pol_s")).unwrap();
        let error = show(&ShowArgs { profile: file.display().to_string(), json: false, toml: false }).unwrap_err();
        assert!(error.to_string().contains("line 34: unknown field `pol_s`"), "{error}");
        std::fs::write(&file, [0xff]).unwrap();
        assert!(validate(&ValidateArgs { files: vec![file] }).is_err());
    }

    /// A regression: a changed copy of a built-in profile, or one under its name, was shown as that one.
    #[test]
    fn a_file_is_not_taken_for_a_built_in_profile() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("copy.toml");
        std::fs::write(&file, builtin("newport").unwrap()).unwrap();
        let named = file.display().to_string();
        assert_eq!(modelled(&named).unwrap().name, named);
        assert_eq!(modelled("newport").unwrap().name, "newport");
        let error = checked(&file).unwrap_err().to_string();
        assert!(error.contains("line 1: name: newport is a profile that comes with the program"), "{error}");
        assert_eq!(checked(Path::new("newport")).unwrap().name, "newport");
        assert!(validate(&ValidateArgs { files: vec![PathBuf::from("newport"), file] }).is_err());
    }

    #[test]
    fn a_name_that_is_no_profile_is_told_what_there_is() {
        let error = text_of("floppy").unwrap_err().to_string();
        assert!(error.contains("no built-in profile floppy; there are smart-ssd"), "{error}");
        for file in ["./nofile", "nofile.toml"] {
            let error = text_of(file).unwrap_err().to_string();
            assert!(error.contains(file) && !error.contains("built-in"), "{error}");
        }
    }
}

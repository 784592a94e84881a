//! `pithead token`: a new identity for an access file, and the token that it is known by.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;
use pithead_embed::{Access, Token};
use pithead_model::{Blame, Fault};

use crate::error::CliError;
use crate::secret_file::{Mode, write_new, write_over};
use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  pithead token reports --read main,sales   # reports.token; its hash and rights in access.toml
  pithead token ops --administer '*'
  pithead token reports -o next.token        # one more token of the same identity
  pithead sql --drives server1 --tls-ca ca.pem --token-file reports.token

The access file is what `drive serve --access` names; a copy belongs to each drive. To take a right
away, edit it.";

const FILE_HEAD: &str = "\
# Who may do what on a drive: `pithead drive serve --access FILE`. Drives notice when it changes.
# Rights are lists of domains; \"*\" is every domain. administer includes write, and write includes read.
";

/// Make a token for an identity, and add the identity to an access file.
///
/// The token is a secret: who has it is the identity. The access file holds only its hash, and what SCRAM checks it by; a new one
/// can be read by its owner alone, and one that is there keeps its owner, its permissions and the links to it. An identity
/// that is there already gets one more token, without new rights, so that its hosts can change over from one to the next.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TokenArgs {
    /// Name of the identity
    #[arg(value_name = "NAME")]
    name: String,
    /// Domains that it may ask
    #[arg(long, value_name = "DOMAIN,…", value_delimiter = ',')]
    read: Vec<String>,
    /// Domains that it may load into and drop from, too
    #[arg(long, value_name = "DOMAIN,…", value_delimiter = ',')]
    write: Vec<String>,
    /// Domains that it may also move between drives
    #[arg(long, value_name = "DOMAIN,…", value_delimiter = ',')]
    administer: Vec<String>,
    /// Modules of SSDlets that it may run at drives; * is every module
    #[arg(long, value_name = "MODULE,…", value_delimiter = ',')]
    run_programs: Vec<String>,
    /// Modules that it may also load, replace and remove
    #[arg(long, value_name = "MODULE,…", value_delimiter = ',')]
    load_programs: Vec<String>,
    /// Access file; made if there is none
    #[arg(long, value_name = "FILE", default_value = "access.toml")]
    access: PathBuf,
    /// File for the token, which must not be there yet [default: NAME.token]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(args: &TokenArgs) -> Result<(), CliError> {
    let _turn = turn(&args.access);
    let before = match fs::read_to_string(&args.access) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => FILE_HEAD.to_owned(),
        Err(error) => return Err(CliError::file(&args.access, error)),
    };
    let known = Access::parse(&before).map_err(|fault| fault.at(args.access.display()))?;
    let is_there = known.has_name(&args.name);
    if !is_there && rights(args).iter().all(|(_, names)| names.is_empty()) {
        let fault = Fault::new(Blame::User, format!("{:?} would have no right at all", args.name));
        return Err(fault.hint("name domains: --read main, --write main, or --administer '*'").into());
    }
    let token = Token::random();
    let after = format!("{before}\n{}", entry(args, &token, &known));
    Access::parse(&after).map_err(|fault| fault.at(args.access.display()))?;
    let output = match &args.output {
        Some(output) => output.clone(),
        None if args.name.contains('/') => {
            return Err(CliError::user(format!("{:?} cannot name a file; name one: -o FILE", args.name)));
        }
        None => PathBuf::from(format!("{}.token", args.name)),
    };
    write_new(&output, &format!("{}\n", token.text()), Mode::Secret, "name another file: -o FILE")?;
    // What SCRAM checks tokens by is enough to stand in for a drive.
    write_over(&args.access, &after, Mode::Guarded).inspect_err(|_| {
        // Nobody is known by it.
        let _ = fs::remove_file(&output);
    })?;
    let (output, access, name) = (output.display(), args.access.display(), &args.name);
    match is_there {
        true => terminal::tell(format_args!(
            "made {output}, which is secret, and added it to the tokens of {name} in {access}; once the old one is used no more, \
             remove its entry"
        )),
        false => terminal::tell(format_args!("made {output}, which is secret, and added {name} to {access}")),
    }
    Ok(())
}

/// Waits for others that change an access file, and keeps them out until it is dropped. It is the file's folder that is locked, as
/// each change puts another file into its place.
fn turn(access: &Path) -> Option<File> {
    let access = fs::canonicalize(access).unwrap_or_else(|_| access.to_owned());
    let folder = access.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let locked = File::open(folder).and_then(|folder| folder.lock().map(|()| folder));
    // Some file systems have no locks, and one does not go without a token for that.
    locked.inspect_err(|error| tracing::debug!(%error, folder = %folder.display(), "not locked")).ok()
}

/// The lists of the access file, by name.
fn rights(args: &TokenArgs) -> [(&'static str, &Vec<String>); 5] {
    [
        ("read", &args.read),
        ("write", &args.write),
        ("administer", &args.administer),
        ("run_programs", &args.run_programs),
        ("load_programs", &args.load_programs),
    ]
}

/// The identity as the file has it. JSON's strings and lists of them are TOML's, too.
fn entry(args: &TokenArgs, token: &Token, known: &Access) -> String {
    let mut lines = vec![
        "[[identity]]".to_owned(),
        format!("name = {}", serde_json::json!(args.name)),
        format!("token = {}", serde_json::json!(token.hash())),
        format!("scram = {}", serde_json::json!(known.verifier(&args.name, token).to_string())),
    ];
    for (right, names) in rights(args) {
        if !names.is_empty() {
            lines.push(format!("{right} = {}", serde_json::json!(names)));
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::error::code;

    fn args_in(folder: &Path, name: &str, output: &str) -> TokenArgs {
        TokenArgs {
            name: name.to_owned(),
            read: vec!["main".into(), "a \"b\"\n".into()],
            write: vec![],
            administer: vec![],
            run_programs: vec![],
            load_programs: vec![],
            access: folder.join("access.toml"),
            output: Some(folder.join(output)),
        }
    }

    #[test]
    fn those_that_are_made_at_one_time_are_all_there() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for number in 0..16 {
                let args = args_in(folder.path(), &format!("one-{number}"), &format!("{number}.token"));
                scope.spawn(move || run(&args).unwrap());
            }
        });
        let text = fs::read_to_string(folder.path().join("access.toml")).unwrap();
        assert_eq!(text.matches("[[identity]]").count(), 16, "{text}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 17);
    }

    #[test]
    fn one_that_cannot_be_made_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        run(&args_in(folder.path(), "one", "token")).unwrap();
        let another = TokenArgs { read: vec![], ..args_in(folder.path(), "one", "token") };
        let CliError::Fault(fault) = run(&another).unwrap_err() else { panic!("a fault") };
        assert!(code(fault.blame) == 3 && fault.hint.as_deref().is_some_and(|hint| hint.contains("-o FILE")), "{fault:?}");
        // What is written beside the access file has its place taken.
        fs::create_dir(folder.path().join(format!("access.toml.{}.new", std::process::id()))).unwrap();
        run(&args_in(folder.path(), "two", "other")).unwrap_err();
        assert!(folder.path().join("token").exists() && !folder.path().join("other").exists());
    }

    #[test]
    fn identities_are_added_to_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let args = |name: &str, output: &str| args_in(folder.path(), name, output);
        run(&args("one", "1")).unwrap();
        run(&args("ünïcode \"two\"", "2")).unwrap();
        let text = fs::read_to_string(path("access.toml")).unwrap();
        assert!(text.starts_with("# Who") && text.matches("[[identity]]").count() == 2, "{text}");
        let token = Token::from_file(&path("1")).unwrap();
        assert!(text.contains(&token.hash()) && !text.contains(token.text()));
        for refused in [args("one", "3"), args("three", "2"), TokenArgs { read: vec![], ..args("four", "4") }] {
            run(&refused).unwrap_err();
        }
        assert_eq!(fs::read_to_string(path("access.toml")).unwrap(), text);
        assert!(!path("3").exists() && !path("4").exists());
        run(&TokenArgs { read: vec![], ..args("one", "next") }).unwrap();
        let access = Access::parse(&fs::read_to_string(path("access.toml")).unwrap()).unwrap();
        assert!(access.has_name("one") && path("next").exists());
        // It has what tokens are checked by, which is for the drives alone; whom its owner lets read it may go on.
        let mode = || fs::metadata(path("access.toml")).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        fs::set_permissions(path("access.toml"), fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("access.toml", path("linked.toml")).unwrap();
        run(&TokenArgs { access: path("linked.toml"), ..args("linked", "5") }).unwrap();
        assert!(path("linked.toml").is_symlink() && mode() == 0o640);
        let access = Access::parse(&fs::read_to_string(path("access.toml")).unwrap()).unwrap();
        assert!(access.has_name("linked"));
        // Both tokens can be proven, by one salt.
        let after = fs::read_to_string(path("access.toml")).unwrap();
        let lines: Vec<_> = after.lines().filter_map(|line| line.strip_prefix("scram = ")).collect();
        let salts = lines.iter().map(|line| line.split('$').nth(1).unwrap()).collect::<Vec<_>>();
        assert!(salts.len() == 4 && salts[0] == salts[2] && salts[0] != salts[1], "{after}");
    }
}

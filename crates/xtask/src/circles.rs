//! Circles: groups of modules of one crate that `use` each other, directly or over others. Who reads one of a group has to read
//! all. Their number may fall, and does not grow.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use crate::findings::{Findings, Tree};

/// As many as there are.
const CIRCLES: usize = 31;

/// A module by its path in its crate.
type Module = Vec<String>;

/// Counts the circles of all crates.
pub fn check(tree: &Tree, findings: &mut Findings) {
    let mut crates: BTreeMap<String, BTreeMap<Module, String>> = BTreeMap::new();
    for file in tree.with_endings(&["rs"]) {
        if let Some((name, module)) = module_of(file) {
            crates.entry(name).or_default().insert(module, tree.text(file, findings));
        }
    }
    let mut found = Vec::new();
    for (name, modules) in &crates {
        found.extend(circles(modules).into_iter().map(|circle| format!("{name} ({circle})")));
    }
    let place = "crates/xtask/src/circles.rs";
    match found.len().cmp(&CIRCLES) {
        Ordering::Greater => {
            let what = format!("{} circles of modules, at most {CIRCLES} are allowed: {}", found.len(), found.join("; "));
            findings.error(place, what);
        }
        Ordering::Less => findings.warn(place, format!("{} circles of modules are left; lower CIRCLES", found.len())),
        Ordering::Equal => {}
    }
}

/// The crate of a file and its module there; none: the file is a crate's root, a test, or of no crate.
fn module_of(file: &Path) -> Option<(String, Module)> {
    let parts: Vec<String> = file
        .with_extension("")
        .components()
        .filter_map(|part| if let Component::Normal(name) = part { Some(name.to_string_lossy().into_owned()) } else { None })
        .collect();
    let [folder, name, src, module @ ..] = parts.as_slice() else { return None };
    let module: Module = module.iter().filter(|part| *part != "mod").cloned().collect();
    let is_root = module.is_empty() || module == ["lib"] || module == ["main"];
    let is_test = module.iter().any(|part| part == "tests");
    (folder == "crates" && src == "src" && !is_root && !is_test).then(|| (name.clone(), module))
}

/// The circles of a crate, as the names of their modules.
fn circles(modules: &BTreeMap<Module, String>) -> Vec<String> {
    let edges: BTreeMap<&Module, BTreeSet<&Module>> =
        modules.iter().map(|(module, text)| (module, used(module, text, modules))).collect();
    let reached: BTreeMap<&Module, BTreeSet<&Module>> = modules.keys().map(|module| (module, reach(module, &edges))).collect();
    let mut circles = BTreeSet::new();
    for (module, others) in &reached {
        let circle: Vec<String> =
            others.iter().filter(|other| reached[**other].contains(*module)).map(|other| other.join("::")).collect();
        if circle.len() > 1 {
            circles.insert(circle.join(", "));
        }
    }
    circles.into_iter().collect()
}

fn reach<'a>(from: &'a Module, edges: &BTreeMap<&'a Module, BTreeSet<&'a Module>>) -> BTreeSet<&'a Module> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        open.extend(edges[module].iter().copied().filter(|next| reached.insert(*next)));
    }
    reached
}

/// The modules that a module's text uses, its tests aside.
fn used<'a>(module: &Module, text: &str, modules: &'a BTreeMap<Module, String>) -> BTreeSet<&'a Module> {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut paths = Vec::new();
    let mut rest = text.lines();
    while let Some(line) = rest.next() {
        let Some((before, first)) = line.split_once("use ") else { continue };
        if !before.trim().is_empty() && !before.trim().starts_with("pub") {
            continue;
        }
        let mut tree = first.to_owned();
        while !tree.contains(';') {
            let Some(line) = rest.next() else { break };
            tree.push_str(line.trim());
        }
        expand(&[], tree.split(';').next().unwrap_or_default(), &mut paths);
    }
    let known = paths.into_iter().filter_map(|path| {
        let mut absolute = absolute(module, &path)?;
        while !modules.contains_key(&absolute) {
            absolute.pop()?;
        }
        modules.get_key_value(&absolute).map(|(known, _)| known)
    });
    known.filter(|known| *known != module).collect()
}

/// The paths that a tree of `use` names.
fn expand(before: &[String], tree: &str, paths: &mut Vec<Module>) {
    let (mut depth, mut start) = (0, 0);
    for (at, character) in tree.char_indices().chain([(tree.len(), ',')]) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let branch = tree[start..at].trim();
                start = (at + 1).min(tree.len());
                let (stem, inner) = branch.split_once('{').unwrap_or((branch, ""));
                let stem = stem.split(" as ").next().unwrap_or_default().split("::").map(str::trim);
                let path: Module =
                    before.iter().cloned().chain(stem.filter(|part| !part.is_empty()).map(str::to_owned)).collect();
                match inner.rsplit_once('}') {
                    Some((inner, _)) => expand(&path, inner, paths),
                    None => paths.push(path),
                }
            }
            _ => {}
        }
    }
}

/// A path from the crate's root; none: it leads into another crate.
fn absolute(module: &Module, path: &[String]) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    let ups = path.iter().take_while(|part| *part == "super").count();
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([module.as_slice(), rest].concat()),
        "super" => Some([&module[..module.len().checked_sub(ups)?], &path[ups..]].concat()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_found_over_several_modules() {
        let text = |module: &str, text: &str| (vec![module.to_owned()], text.to_owned());
        let modules = [
            text("a", "use std::fmt;\nuse crate::{b::{B, c as d}, e};\n"),
            text("b", "pub(crate) use super::c::C;\n"),
            text("c", "use crate::{\n    a::A,\n};\n"),
            text("e", "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n"),
        ];
        assert_eq!(circles(&modules.into()), ["a, b, c"]);
        assert_eq!(module_of(Path::new("crates/x/src/a/mod.rs")), Some(("x".to_owned(), vec!["a".to_owned()])));
        assert_eq!(module_of(Path::new("crates/x/src/lib.rs")), None);
    }
}

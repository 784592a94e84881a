//! Settings in the options that a connection begins with.

/// `-c name=value --name=value`, as PostgreSQL's options are written; a backslash stands before a space that belongs to a value.
pub(crate) fn options(text: &str) -> Vec<(String, String)> {
    let (mut words, mut word, mut escaped) = (Vec::new(), String::new(), false);
    for character in text.chars() {
        match character {
            '\\' if !escaped => escaped = true,
            character if character.is_whitespace() && !escaped => words.push(std::mem::take(&mut word)),
            other => {
                word.push(other);
                escaped = false;
            }
        }
    }
    words.push(word);
    let words = words.into_iter().filter(|word| !word.is_empty() && word != "-c");
    let pair = |word: String| {
        let word = word.strip_prefix("--").or_else(|| word.strip_prefix("-c")).unwrap_or(&word).to_owned();
        word.split_once('=').map(|(name, value)| (name.replace('-', "_"), value.to_owned()))
    };
    words.filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_pairs() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            options("-c geqo=off --statement-timeout=5s -csearch_path=a\\ b"),
            [pair("geqo", "off"), pair("statement_timeout", "5s"), pair("search_path", "a b")]
        );
    }
}

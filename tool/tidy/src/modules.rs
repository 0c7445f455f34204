//! The modules of each crate and the references between them, read from the tokens of the sources.
//!
//! A path counts as a reference to the module that defines its target, through imports and re-exports. Names
//! of methods and fields are not paths. Tests and loom models are excluded.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, Ident, TokenTree};

use crate::tokens::{is_ident, is_punct, line, shipped};
use crate::tree::File;

/// The keywords that precede the name of an item.
const ITEMS: [&str; 8] = ["struct", "enum", "trait", "union", "fn", "const", "static", "type"];

/// The keywords between those of [`ITEMS`] and the name, as in `const unsafe fn` and `static mut`.
const QUALIFIERS: [&str; 5] = ["fn", "unsafe", "extern", "async", "mut"];

/// The maximum number of imports of imports to follow; a path with more of them counts as foreign.
const DEPTH: usize = 16;

/// The index of a module in [`Modules`].
pub type Id = usize;

/// A module, in its own file or inline.
#[derive(Debug, Default)]
pub struct Module {
    /// The name of the module; for the root, the folder of the crate.
    pub name: String,
    /// The module that declares this one; `None` for the root of a crate.
    pub parent: Option<Id>,
    children: BTreeMap<String, Id>,
    items: BTreeSet<String>,
    /// The imported paths, by the name that each brings into the module.
    imports: BTreeMap<String, Vec<String>>,
    /// The imported paths that the module passes on with `pub use`.
    reexports: BTreeSet<Vec<String>>,
    /// The paths of glob imports.
    globs: Vec<Vec<String>>,
    /// Every path in the module's code, and its first line.
    paths: BTreeMap<Vec<String>, usize>,
    file: String,
}

/// A reference from one module to another, and the first place where it occurs.
#[derive(Debug, Clone)]
pub struct Arrow {
    /// The module that contains the reference.
    pub source: Id,
    /// The module that defines the target.
    pub target: Id,
    /// The place, as `file:line: path`.
    pub site: String,
}

/// The meaning of a name in a module.
#[derive(Debug, Copy, Clone)]
enum Found {
    /// An item of this module.
    Here(Id),
    /// A module itself, or an item of another crate.
    Elsewhere,
}

impl Found {
    fn new(definer: Option<Id>) -> Self {
        definer.map_or(Self::Elsewhere, Self::Here)
    }
}

/// All modules of all crates.
#[derive(Debug, Default)]
pub struct Modules {
    /// The modules, indexed by their [`Id`].
    pub all: Vec<Module>,
}

impl Modules {
    /// Reads the crates whose sources are among the files.
    pub fn read(files: &[File]) -> Self {
        let by_path: BTreeMap<&str, &File> = files.iter().map(|file| (file.path.as_str(), file)).collect();
        let mut modules = Self::default();
        for file in files.iter().filter(|file| file.is_source()) {
            let Some((folder, "lib.rs" | "main.rs")) = file.path.rsplit_once('/') else { continue };
            if file.parts().count() != 3 {
                continue;
            }
            let root = Module { name: file.member().to_owned(), ..Module::default() };
            modules.add(root, file, folder, &by_path);
        }
        modules
    }

    fn add(&mut self, module: Module, file: &File, folder: &str, files: &BTreeMap<&str, &File>) {
        let id = self.all.len();
        self.all.push(Module { file: file.path.clone(), ..module });
        // Other rules report a file that does not lex.
        let Ok(stream) = file.text.parse() else { return };
        let tokens = shipped(stream);
        self.level(id, &tokens, folder, files, true);
    }

    /// Reads one level of nesting. `outer` is true if its items belong to the module itself.
    fn level(
        &mut self,
        id: Id,
        tokens: &[TokenTree],
        folder: &str,
        files: &BTreeMap<&str, &File>,
        outer: bool,
    ) {
        let mut index = 0;
        while index < tokens.len() {
            let module = &mut self.all[id];
            match (&tokens[index], tokens.get(index + 1), tokens.get(index + 2)) {
                (word, Some(TokenTree::Ident(name)), Some(next)) if outer && is_ident(Some(word), "mod") => {
                    self.child(id, &name.to_string(), next, folder, files);
                    index += 3;
                }
                (word, ..) if is_ident(Some(word), "use") => {
                    let end = end_of(tokens, index);
                    module.import(&tokens[index + 1..end], Vec::new(), is_public(&tokens[..index]));
                    index = end;
                }
                (word, Some(TokenTree::Ident(name)), _) if outer && is_item(word, name) => {
                    module.items.insert(name.to_string());
                    index += 2;
                }
                (word, Some(_), Some(TokenTree::Ident(name)))
                    if outer && is_ident(Some(word), "macro_rules") =>
                {
                    module.items.insert(name.to_string());
                    index += 3;
                }
                (TokenTree::Ident(_), ..) => index = module.path(tokens, index),
                (TokenTree::Group(group), ..) => {
                    let inner = shipped(group.stream());
                    self.level(id, &inner, folder, files, false);
                    index += 1;
                }
                _ => index += 1,
            }
        }
    }

    /// Adds a module that this one declares, inline or in its file.
    fn child(&mut self, id: Id, name: &str, body: &TokenTree, folder: &str, files: &BTreeMap<&str, &File>) {
        let module = Module { name: name.to_owned(), parent: Some(id), ..Module::default() };
        let below = format!("{folder}/{name}");
        let child = self.all.len();
        if let TokenTree::Group(group) = body {
            self.all.push(Module { file: self.all[id].file.clone(), ..module });
            let tokens = shipped(group.stream());
            self.level(child, &tokens, &below, files, true);
        } else {
            let paths = [format!("{below}.rs"), format!("{below}/mod.rs")];
            let Some(file) = paths.iter().find_map(|path| files.get(path.as_str())) else { return };
            self.add(module, file, &below, files);
        }
        self.all[id].children.insert(name.to_owned(), child);
    }

    /// Returns every reference between two modules of one crate, without duplicates. A `pub use` is a
    /// reference only of the modules that use the name.
    pub fn arrows(&self) -> Vec<Arrow> {
        let mut arrows = BTreeMap::new();
        for (source, module) in self.all.iter().enumerate() {
            let imports = module.imports.values().chain(&module.globs);
            let paths = imports.chain(module.paths.keys());
            for path in paths.filter(|path| !module.reexports.contains(*path)) {
                let Some(target) = self.definer(source, path, DEPTH).filter(|target| *target != source)
                else {
                    continue;
                };
                let line = module.paths.get(path).copied().unwrap_or_default();
                let site = format!("{}:{line}: {}", module.file, path.join("::"));
                arrows.entry((source, target)).or_insert(Arrow { source, target, site });
            }
        }
        arrows.into_values().collect()
    }

    /// Returns the module of this crate that defines the path's target. Returns `None` if the target is a
    /// module or belongs to another crate.
    fn definer(&self, id: Id, path: &[String], depth: usize) -> Option<Id> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.walk(self.root(id), rest, depth),
            "self" => self.walk(id, rest, depth),
            "super" => self.walk(self.all[id].parent?, rest, depth),
            _ => match self.find(id, first, rest, depth)? {
                Found::Here(module) => Some(module),
                Found::Elsewhere => None,
            },
        }
    }

    /// Returns the module that defines a path within this module. An unknown name counts as defined here by a
    /// macro.
    fn walk(&self, module: Id, path: &[String], depth: usize) -> Option<Id> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "super" => self.walk(self.all[module].parent?, rest, depth),
            "self" => self.walk(module, rest, depth),
            _ => match self.find(module, first, rest, depth) {
                Some(Found::Elsewhere) => None,
                Some(Found::Here(id)) => Some(id),
                None => Some(module),
            },
        }
    }

    /// Looks up a name in a module. Returns `None` if the module does not have it.
    fn find(&self, id: Id, name: &str, rest: &[String], depth: usize) -> Option<Found> {
        let module = &self.all[id];
        let depth = depth.checked_sub(1)?;
        if let Some(child) = module.children.get(name) {
            return Some(Found::new(self.walk(*child, rest, depth)));
        }
        if module.items.contains(name) {
            return Some(Found::Here(id));
        }
        if let Some(path) = module.imports.get(name) {
            // `use name;` imports another crate, whose paths do not lead back here.
            if path.first().is_some_and(|first| first == name) && !module.children.contains_key(name) {
                return Some(Found::Elsewhere);
            }
            return Some(Found::new(self.definer(id, &[path, rest].concat(), depth)));
        }
        module.globs.iter().find_map(|glob| {
            let target = self.module(id, glob, depth).filter(|target| *target != id)?;
            self.find(target, name, rest, depth)
        })
    }

    /// Returns the module that a path names.
    fn module(&self, start: Id, path: &[String], depth: usize) -> Option<Id> {
        let mut id = start;
        let mut path = path;
        while let Some((first, rest)) = path.split_first() {
            let module = &self.all[id];
            id = match first.as_str() {
                "crate" => self.root(id),
                "self" => id,
                "super" => module.parent?,
                name => match (module.children.get(name), module.imports.get(name)) {
                    (Some(child), _) => *child,
                    (None, Some(import)) => self.module(id, import, depth.checked_sub(1)?)?,
                    (None, None) => return None,
                },
            };
            path = rest;
        }
        Some(id)
    }

    /// Returns the path of the file that contains the module's code.
    pub fn file(&self, id: Id) -> &str {
        &self.all[id].file
    }

    fn root(&self, mut id: Id) -> Id {
        while let Some(parent) = self.all[id].parent {
            id = parent;
        }
        id
    }

    /// Returns the modules from the crate's root to this one.
    fn line(&self, id: Id) -> Vec<Id> {
        let mut line = vec![id];
        while let Some(parent) = self.all[line[line.len() - 1]].parent {
            line.push(parent);
        }
        line.reverse();
        line
    }

    /// Returns the path of the module in the form `crate::module`.
    pub fn name(&self, id: Id) -> String {
        let names: Vec<&str> = self.line(id).into_iter().map(|id| self.all[id].name.as_str()).collect();
        names.join("::")
    }
}

impl Module {
    /// Records the imports of the tokens after `use`. `before` is the path up to here.
    fn import(&mut self, tree: &[TokenTree], before: Vec<String>, public: bool) {
        let mut path = before;
        for (index, token) in tree.iter().enumerate() {
            match token {
                TokenTree::Ident(word) if word == "as" => {
                    let name = tree.get(index + 1).map(ToString::to_string).unwrap_or_default();
                    self.bring(name, path, line(token), public);
                    return;
                }
                TokenTree::Ident(word) => path.push(word.to_string()),
                TokenTree::Punct(punct) if punct.as_char() == '*' => {
                    self.globs.push(path);
                    return;
                }
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    for part in inner.split(|token| is_punct(Some(token), ',')) {
                        self.import(part, path.clone(), public);
                    }
                    return;
                }
                _ => {}
            }
        }
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        if let (Some(name), Some(token)) = (path.last().cloned(), tree.first()) {
            self.bring(name, path, line(token), public);
        }
    }

    fn bring(&mut self, name: String, path: Vec<String>, line: usize, public: bool) {
        if public {
            self.reexports.insert(path.clone());
        }
        self.paths.entry(path.clone()).or_insert(line);
        self.imports.insert(name, path);
    }

    /// Records the path that begins at index `index`, and returns the index of its end.
    fn path(&mut self, tokens: &[TokenTree], index: usize) -> usize {
        let is_part = |index: usize| is_punct(tokens.get(index), ':') && is_punct(tokens.get(index + 1), ':');
        let mut path = vec![tokens[index].to_string()];
        let mut end = index + 1;
        while let (true, Some(TokenTree::Ident(name))) = (is_part(end), tokens.get(end + 2)) {
            path.push(name.to_string());
            end += 3;
        }
        // A field or method is not a path. A lone name counts because a glob import may provide it, if it is
        // a type, a call or a macro.
        let behind = |back: usize| index.checked_sub(back).and_then(|index| tokens.get(index));
        let after_dot = is_punct(behind(1), '.') && !is_punct(behind(2), '.');
        let calls = matches!(tokens.get(end), Some(TokenTree::Group(_))) || is_punct(tokens.get(end), '!');
        let is_named = path[0].starts_with(char::is_uppercase) || calls || path.len() > 1;
        if !after_dot && is_named && !is_ident(behind(1), "fn") {
            self.paths.entry(path).or_insert(line(&tokens[index]));
        }
        end
    }
}

fn is_item(word: &TokenTree, name: &Ident) -> bool {
    ITEMS.iter().any(|item| is_ident(Some(word), item)) && !QUALIFIERS.iter().any(|word| name == word)
}

/// Returns true if the tokens end with a visibility.
fn is_public(before: &[TokenTree]) -> bool {
    match before.last() {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
            is_ident(before.len().checked_sub(2).map(|index| &before[index]), "pub")
        }
        last => is_ident(last, "pub"),
    }
}

/// Returns the index of the next semicolon, or of the end.
fn end_of(tokens: &[TokenTree], index: usize) -> usize {
    let behind = tokens[index..].iter().position(|token| is_punct(Some(token), ';'));
    behind.map_or(tokens.len(), |behind| index + behind)
}

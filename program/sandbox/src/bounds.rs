//! Bounds on the sizes of a module. Time and memory of the compilation depend on these sizes, and some of
//! them multiply, so each size is checked before the compilation. Kernels made by a compiler stay far below
//! all bounds.

use wasmparser::{
    ElementItems, ElementSectionReader, FuncType, FunctionBody, Imports, MemorySectionReader, Operator,
    Parser, Payload, SectionLimited, TableSectionReader, TypeSectionReader,
};

use crate::error::SandboxError;
use crate::limits::{ELEMENT, Limits, PAGE};

/// A bound on a size of a module.
struct Bound {
    name: &'static str,
    most: u64,
    mend: &'static str,
}

const fn bound(name: &'static str, most: u64, mend: &'static str) -> Bound {
    Bound { name, most, mend }
}

const BUILD: &str = "build it optimized, without what it does not call";
const SPLIT: &str = "split its largest functions";

const BYTES: Bound = bound("bytes", 16 << 20, "strip what is for debuggers");
const CODE: Bound = bound("bytes of code", 1 << 20, BUILD);
const TYPES: Bound = bound("types", 1024, BUILD);
const PARAMETERS: Bound = bound("parameters of one function", 64, "give it a pointer to them");
const RESULTS: Bound = bound("results of one function or block", 16, "let it store them");
const FUNCTIONS: Bound = bound("functions", 4096, BUILD);
const BODY: Bound = bound("bytes in one function", 64 << 10, SPLIT);
const LOCALS: Bound = bound("locals in one function", 4096, SPLIT);
const DEPTH: Bound = bound("blocks within each other", 1024, SPLIT);
/// The compiler's work for a function grows with this product, about half a microsecond per unit, even if
/// all other sizes are bounded.
const BRANCHES: Bound = bound("branches times locals and loops, of all functions", 4 << 20, SPLIT);
/// Cost of a loop and of another branch, relative to a local in the loop.
const LOOP: u64 = 4;
const BRANCH: u64 = 256;
const GLOBALS: Bound = bound("globals", 1024, "keep them in its memory");
const EXPORTS: Bound = bound("exports", 1024, "export what program/sandbox/template exports");
const DATA: Bound = bound("data segments", 1024, BUILD);
const SEGMENTS: Bound = bound("element segments", 1024, BUILD);
const ELEMENTS: Bound = bound("elements in its segments", 64 << 10, BUILD);
const MEMORIES: Bound = bound("memories", 1, "keep everything in the one that it exports");
const TABLES: Bound = bound("tables", 1, "keep all functions in one");
const TABLE: Bound =
    bound("elements in a table", crate::limits::ELEMENTS as u64, "declare what its functions need");

impl Bound {
    fn check(&self, has: u64) -> Result<(), SandboxError> {
        let Bound { name, most, mend } = *self;
        if has <= most { Ok(()) } else { Err(SandboxError::TooMuch { what: name, has, most, mend }) }
    }
}

fn malformed(error: wasmparser::Error) -> SandboxError {
    SandboxError::NotWasm(error.to_string())
}

/// The sizes of the sections read so far.
#[derive(Default)]
struct Shape {
    /// Number of parameters of each type.
    types: Vec<u64>,
    /// Types of the functions, and number of bodies read so far.
    functions: Vec<u32>,
    bodies: usize,
    branches: u64,
    elements: u64,
    /// Initial size of memory and tables in bytes, and maximum size of the memory if the module declares
    /// one.
    takes: u64,
    memory: Option<u64>,
}

/// Checks all bounds of a module. Returns the number of bytes of address space to reserve for a lane's
/// memory.
pub(crate) fn check(wasm: &[u8], limits: &Limits) -> Result<u64, SandboxError> {
    BYTES.check(wasm.len() as u64)?;
    let mut shape = Shape::default();
    for payload in Parser::new(0).parse_all(wasm) {
        shape.payload(payload.map_err(malformed)?)?;
    }
    let memory =
        bound("bytes of memory and table", limits.memory as u64, "declare less, or raise `Limits::memory`");
    memory.check(shape.takes)?;
    Ok(shape.memory.map_or(memory.most, |most| most.min(memory.most)))
}

impl Shape {
    fn payload(&mut self, payload: Payload<'_>) -> Result<(), SandboxError> {
        match payload {
            Payload::TypeSection(types) => self.types(types),
            Payload::ImportSection(imports) => refuse(imports),
            Payload::FunctionSection(functions) => {
                FUNCTIONS.check(functions.count().into())?;
                self.functions = functions.into_iter().collect::<Result<_, _>>().map_err(malformed)?;
                Ok(())
            }
            Payload::TableSection(tables) => self.tables(tables),
            Payload::MemorySection(memories) => self.memories(memories),
            Payload::GlobalSection(globals) => GLOBALS.check(globals.count().into()),
            Payload::ExportSection(exports) => EXPORTS.check(exports.count().into()),
            Payload::ElementSection(segments) => self.elements(segments),
            Payload::DataSection(segments) => DATA.check(segments.count().into()),
            Payload::CodeSectionStart { size, .. } => CODE.check(size.into()),
            Payload::CodeSectionEntry(body) => self.body(&body),
            _ => Ok(()),
        }
    }

    fn types(&mut self, types: TypeSectionReader<'_>) -> Result<(), SandboxError> {
        TYPES.check(types.count().into())?;
        for function_type in types.into_iter_err_on_gc_types() {
            let function_type: FuncType = function_type.map_err(malformed)?;
            PARAMETERS.check(function_type.params().len() as u64)?;
            RESULTS.check(function_type.results().len() as u64)?;
            self.types.push(function_type.params().len() as u64);
        }
        Ok(())
    }

    fn tables(&mut self, tables: TableSectionReader<'_>) -> Result<(), SandboxError> {
        TABLES.check(tables.count().into())?;
        for table in tables {
            let elements = table.map_err(malformed)?.ty.initial;
            TABLE.check(elements)?;
            self.takes += elements * ELEMENT as u64;
        }
        Ok(())
    }

    fn memories(&mut self, memories: MemorySectionReader<'_>) -> Result<(), SandboxError> {
        MEMORIES.check(memories.count().into())?;
        for memory in memories {
            let memory = memory.map_err(malformed)?;
            self.takes = self.takes.saturating_add(memory.initial.saturating_mul(PAGE));
            self.memory = memory.maximum.map(|pages| pages.saturating_mul(PAGE));
        }
        Ok(())
    }

    fn elements(&mut self, segments: ElementSectionReader<'_>) -> Result<(), SandboxError> {
        SEGMENTS.check(segments.count().into())?;
        for segment in segments {
            let count = match segment.map_err(malformed)?.items {
                ElementItems::Functions(items) => items.count(),
                ElementItems::Expressions(_, items) => items.count(),
            };
            self.elements += u64::from(count);
            ELEMENTS.check(self.elements)?;
        }
        Ok(())
    }

    fn body(&mut self, body: &FunctionBody<'_>) -> Result<(), SandboxError> {
        BODY.check(body.range().len() as u64)?;
        let parameters = self.functions.get(self.bodies).and_then(|index| self.types.get(*index as usize));
        self.bodies += 1;
        let mut locals = 0;
        for declared in body.get_locals_reader().map_err(malformed)? {
            locals += u64::from(declared.map_err(malformed)?.0);
            LOCALS.check(locals)?;
        }
        let each = 1 + locals + parameters.copied().unwrap_or(0);
        let mut depth = 0u64;
        let mut branches = 0;
        let mut loops = 0;
        for operator in body.get_operators_reader().map_err(malformed)? {
            let operator = operator.map_err(malformed)?;
            loops += u64::from(matches!(operator, Operator::Loop { .. }));
            branches += match operator {
                Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => {
                    depth += 1;
                    DEPTH.check(depth)?;
                    1
                }
                Operator::End => {
                    depth = depth.saturating_sub(1);
                    0
                }
                Operator::Else | Operator::Br { .. } | Operator::BrIf { .. } => 1,
                Operator::BrTable { targets } => u64::from(targets.len()),
                _ => continue,
            };
        }
        self.branches += branches * (each + loops / LOOP + branches / BRANCH);
        BRANCHES.check(self.branches)
    }
}

/// Fails if the module imports anything.
fn refuse(imports: SectionLimited<'_, Imports<'_>>) -> Result<(), SandboxError> {
    let named = |module: &str, name: &str| Err(SandboxError::Imports(format!("{module}.{name}")));
    match imports.into_iter().next().transpose().map_err(malformed)? {
        None => Ok(()),
        Some(Imports::Single(_, import)) => named(import.module, import.name),
        Some(Imports::Compact1 { module, .. } | Imports::Compact2 { module, .. }) => named(module, ""),
    }
}

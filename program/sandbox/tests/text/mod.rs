//! Kernels in the text format of WebAssembly.

/// Returns a module with these fields and this step, whose mailbox is at address 0.
pub(crate) fn module(fields: &str, step: &str) -> Vec<u8> {
    with_memory("1", fields, step)
}

/// Returns a module with these fields, this step and `pages` pages of memory.
pub(crate) fn with_memory(pages: &str, fields: &str, step: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
            (memory (export "memory") {pages})
            (data (i32.const 0) "\01")
            {fields}
            (func (export "mailbox") (result i32) i32.const 0)
            (func (export "reset"))
            (func (export "step") (result i32)
                ;; A request whose parameters are one byte is answered at once.
                (if (i32.eq (i32.load (i32.const 40)) (i32.const 1)) (then
                    (i32.store (i32.const 64) (i32.const 1))
                    (i32.store (i32.const 72) (i32.const 1))
                    (return (i32.const 0))))
                (if (i32.eqz (i32.load (i32.const 24))) (then (return (i32.const 0))))
                (i32.store (i32.const 64) (i32.const 1))
                {step}))"#
    );
    wat::parse_str(text).unwrap()
}

//! What must not compile, and what the compiler says to whoever tries. After a change of the compiler's words:
//! `TRYBUILD=overwrite cargo test -p hapax-core --test compile_fail`, then read the difference.

#[test]
fn misuse_is_refused_by_the_compiler() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}

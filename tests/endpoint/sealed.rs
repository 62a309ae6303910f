//! Bodies that are sealed on their way.

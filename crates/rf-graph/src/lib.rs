//! The op vocabulary: graph builder, fusion, planner, backend trait, scalar reference.

"""Wrappers in TypeScript: a JavaScript module for each server, with a file of types for each tool."""

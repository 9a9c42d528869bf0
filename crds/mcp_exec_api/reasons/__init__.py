"""Reasons of executions and of ToolServers, with their meanings and remedies."""

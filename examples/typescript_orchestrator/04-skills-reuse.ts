/** Code that is saved as a skill, found again, and run without being sent again. */
import { MCPOrchestrator } from "./orchestrator.ts";

const orchestrator = new MCPOrchestrator();
await orchestrator.initialize();

const saved = await orchestrator.saveSkill(
  "db-backup-report",
  "Generate database backup report",
  `
    const tables = await supabase.listTables(["public"]);
    const migrations = await supabase.listMigrations();
    return {
      tables: tables.length,
      lastMigration: migrations[migrations.length - 1]?.name,
      timestamp: new Date().toISOString(),
    };
  `,
  ["supabase", "backup", "reporting"],
);
console.log("saved:", saved.name, saved.state);
console.log("found:", (await orchestrator.searchSkills("backup")).map((skill) => skill.name).join(", "));

const result = await orchestrator.executeSkill<{ tables: number; lastMigration?: string }>("db-backup-report");
if (!result.success) throw new Error(result.error);
console.log(`${result.data.tables} tables, last migration: ${result.data.lastMigration}`);

const stats = await orchestrator.getStats();
console.log(`${stats.servers} servers, ${stats.skills} skills`);

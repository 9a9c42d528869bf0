"""Synonyms: words that people use for the words in tools' names. They are spelled out; the index stems them."""

from typing import Final

SAME: Final[dict[str, str]] = {
    "db": "databas",
    "doc": "documentation",
    "folder": "directory",
    "org": "organization",
    "photo": "imag",
    "repo": "repository",
    "ticket": "issu",
}
"""Standard stem by the stem of an abbreviation or synonym, for queries and tools alike."""

MEANINGS: Final[dict[str, str]] = {
    "add": "append attach enter include insert put remember stage",
    "advisor": "advice audit hole insecure lint recommendation rls security tuning unsafe vulnerability weakness",
    "advisory": "advice cve hole security vulnerability",
    "all": "complete entire everything full list",
    "allowed": "access may permit permitted reach restricted root",
    "annotated": "warning",
    "append": "add enter entry insert line put record",
    "apply": "execute run",
    "approve": "accept",
    "assign": "delegate give hand owner responsible",
    "book": "reservation reserve secure",
    "booking": "reservation reserve stay",
    "branch": "line preview sandbox throwaway",
    "bucket": "storage upload",
    "calculate": "arithmetic average compute estimate formula math percent percentage result",
    "cancel": "abort call refund withdraw",
    "category": "class group kind sort topic type",
    "change": "update",
    "channel": "chat conversation forum group room space",
    "check": "build ci failing green passed pipeline red test",
    "checkout": "back jump return switch",
    "code": "grep",
    "comment": "answer criticism discuss discussion feedback mention note objection remark reply respond said say "
    "tell thank",
    "commit": "changeset record revision save snapshot",
    "commits": "author history revision",
    "compress": "archive pack shrink smaller squeeze zip",
    "config": "configuration limit option preference quota setting",
    "configuration": "option setting",
    "content": "inside text",
    "convert": "change difference equivalent transform translate turn zone",
    "copilot": "agent ai assistant automatic bot",
    "cost": "afford bill budget charge diesel expensive fee fuel money much petrol price pricing spend",
    "create": "another begin build compose enter establish generate initiate kick launch make mkdir new produce put "
    "raise register remember report save set setup spin start store submit",
    "current": "currently moment now right today",
    "database": "customer order sql",
    "delete": "abandon bin clear discard dispose ditch drop eliminate erase forget purge remove retract scrap trash "
    "undo unlink wipe",
    "deploy": "live publish release roll rollout ship",
    "diff": "between compare differ difference edit modified patch",
    "difference": "compare",
    "directory": "hierarchy layout ls nested structure subfolder tree",
    "divide": "each evenly fraction half per portion quotient ratio share split",
    "docs": "api deprecated documentation example guide manual middleware newest outdated practice reference "
    "snippet syntax tutorial usage",
    "documentation": "example explain guide howto manual reference sample tutorial",
    "echo": "back mirror parrot repeat same say",
    "edit": "correct fix patch replace rewrite substitute swap",
    "entity": "brother colleague company family friend individual node people person sister",
    "env": "config environ setting variable",
    "evaluate": "arithmetic calculate compute equation expression formula math percent percentage result solve",
    "execute": "count delete insert query row run select update",
    "expense": "bill claim cost hotel invoice lunch money outlay paid payment receipt reimburse reimbursement spend "
    "spending spent",
    "extension": "addon enabled install module plugin",
    "fetch": "article blog browse crawl curl download internet link load online open pull scrape visit web website "
    "wget",
    "file": "attachment content document readme script text",
    "find": "recommend suggest",
    "forecast": "afternoon coat jacket rain snow sunny tomorrow tonight umbrella week weekend",
    "fork": "clone copy derive duplicate own",
    "function": "endpoint lambda serverless",
    "gas": "consumption diesel fuel mpg petrol",
    "generate": "derive produce",
    "get": "fetch give obtain read retrieve see show tell view",
    "git": "checkout clone worktree",
    "github": "gh",
    "graph": "all everything map network whole",
    "gzip": "archive compress pack shrink zip",
    "history": "chat chatter conversation discussed discussion lately log missed past previous recent said summarise "
    "summarize talk talked written yesterday",
    "http": "request",
    "id": "identifier identify",
    "image": "drawing icon pic picture thumbnail",
    "info": "age big detail heavy metadata modified old permission property size stat timestamp weigh",
    "issue": "bug complain complaint crash defect label milestone problem story task todo tracker trouble",
    "key": "anon credential password secret",
    "label": "marker tag",
    "latest": "current last newest recent",
    "library": "dependency framework module package sdk",
    "list": "all available backlog enumerate every exist inventory overview past show view which",
    "log": "author committed crash error history past trace who worked",
    "logging": "debug log noise verbose",
    "long": "lasting progress slow takes wait",
    "me": "account logged myself own username",
    "media": "audio base64 clip image logo photo picture png recording song sound video",
    "member": "belong belongs crew people staff who",
    "memory": "forget know note remember",
    "merge": "accept combine complete finish integrate join land production promote",
    "message": "announce chat post say tell text word write",
    "migration": "alter column constraint ddl schema structural structure version",
    "modify": "alter change",
    "move": "drag relocate rename shift transfer",
    "multiple": "both many several three together",
    "multiply": "double product times triple twice",
    "new": "create",
    "node": "about entity know",
    "observation": "attribute detail fact forget information note remark remember",
    "open": "recall see",
    "operation": "job process task",
    "organization": "account billing company workspace",
    "park": "camper camping campsite overnight place spot",
    "pause": "freeze halt hibernate idle sleep stop suspend",
    "performance": "latency optimise optimize slow speed",
    "plan": "distance drive itinerary road route",
    "post": "announce broadcast dm inform notify publish say send share tell write",
    "production": "prod",
    "profile": "about account birthday contact details email job title",
    "project": "app application backend hosted instance",
    "publishable": "anon client public",
    "pull": "contribution patch proposal propose",
    "push": "commit several single",
    "query": "ask count customer filter find look number order select",
    "reaction": "approve celebrate emoji heart like party react smile smiley thumb",
    "read": "cat contents head last look open print see view",
    "rebase": "behind catch lag sync",
    "relation": "associate between connect connection knows likes link married owner relationship",
    "release": "changelog newest notes publish shipped version",
    "rename": "mv",
    "replies": "answer responded response",
    "reply": "response",
    "repository": "codebase project repo",
    "request": "ask pr",
    "research": "investigation study survey",
    "reset": "clean discard drop restore revert rewind undo unstage",
    "resolve": "identify match",
    "restore": "back online reactivate relaunch restart resume revive running unpause wake",
    "review": "approve approved assess criticise criticize feedback lgtm opinion reviewer sign verdict",
    "reviews": "approved sign verdict",
    "row": "entry line record",
    "running": "long",
    "rv": "camp camper campground campsite caravan motorhome pitch",
    "search": "containing dig discover find glob hunt know look matching mention named pattern where",
    "sequential": "carefully gradual plan step stepwise",
    "sequentialthinking": "bit hypothesis reason revise step think",
    "sheet": "excel spreadsheet tab workbook worksheet",
    "show": "display exactly inspect",
    "simulate": "dummy fake mock pretend",
    "simulated": "demo fake random",
    "size": "big biggest byte disk heaviest heavy large largest megabyte space",
    "sizes": "biggest disk heaviest largest space",
    "sql": "database delete insert row select statement update",
    "staged": "added prepared ready",
    "status": "check clean condition dirty modified pass pending progress ready state untracked working",
    "storage": "attachment bucket upload",
    "structured": "json typed",
    "sub": "child smaller subtask",
    "subscriber": "notification subscribe",
    "subtract": "away change deduct difference discount fewer left leftover less reduce remaining",
    "sum": "add altogether number plus together total",
    "table": "column field row structure",
    "tag": "label mark signed tagged version",
    "team": "crew department group squad",
    "thinking": "ponder reason reasoning reflect step think",
    "thread": "answer conversation discussion reply",
    "time": "clock early hour late oclock zone",
    "toggle": "disable enable switch turn",
    "tree": "hierarchy layout nested overview recursive structure",
    "trigger": "kick launch start",
    "trip": "destination distance drive holiday itinerary journey mile road route tour travel vacation way",
    "type": "definition interface kind",
    "types": "definition interface kind typed",
    "typescript": "ts",
    "unstaged": "changed edited pending uncommitted",
    "update": "adjust amend assign behind bring catch close correct current edit fix fresh mark put reassign rename "
    "reopen set sync",
    "updates": "notification subscribe",
    "url": "address endpoint host hostname link page site web",
    "user": "account colleague contributor developer employee member name people person somebody teammate",
    "users": "everyone people staff",
    "weather": "climate coat cold degree hot humid humidity outside rain snow storm sun sunny temperature umbrella "
    "warm wind",
    "write": "create draft enter overwrite put save store",
}
"""Words of queries by the word of tools that they mean. One way: tools that have them are not found by the others."""

ACTIONS: Final[dict[str, str]] = {
    "create": "create add append begin book build compose draft establish file generate initialise insert launch log "
    "make mkdir new note open propose put raise record register remember reserve save spawn spin start store submit "
    "upload write",
    "delete": "delete call cancel clear destroy discard drop erase forget kill purge remove rm throw unlink",
    "list": "list all browse enumerate every ls which",
    "read": "read are cat check describe did display does download fetch get give grab how inspect is load look open "
    "print retrieve return see show view was what when where who",
    "run": "run calculate compute evaluate execute invoke query select trigger work",
    "search": "search discover find hunt locate look lookup where",
    "send": "send announce answer message notify post reply respond say tell write",
    "update": "update adjust alter assign change close convert edit mark modify move overwrite patch put raise rename "
    "reopen replace set swap tag toggle turn",
}
"""Words for each kind of action, in queries and in names of tools."""

SAME_PHRASES: Final[dict[str, str]] = {
    "bug report": "issue",
    "feature request": "issue",
    "merge request": "pull request",
    "working copy": "git",
}
"""Words that replace a pair of adjacent words of a query."""

PHRASES: Final[dict[str, str]] = {
    "access token": "key",
    "api reference": "documentation docs",
    "be committed": "staged",
    "change branch": "checkout switch",
    "directory contents": "list",
    "follow ups": "thread",
    "how do": "docs",
    "how large": "size",
    "log a": "create",
    "modified files": "status",
    "open source": "search",
    "to date": "update",
    "what day": "time",
    "what time": "current",
    "who am": "me",
    "who is": "user",
}
"""Synonyms by a pair of adjacent words of a query."""

SERVERS: Final[dict[str, str]] = {
    "everything": "example",
    "fetch": "web http url",
    "git": "repository",
    "github": "repo code",
    "slack": "chat message",
    "supabase": "postgres sql db",
    "time": "clock date",
}
"""Synonyms of well-known servers, by a word of their names."""

IGNORED: Final = (
    "a about after again against already also although always am among an and any anybody anyone anything anyway are "
    "around as at awaiting back be because becoming been being believe besides beyond but by came can cannot cant "
    "could couldn current d did didn do does doesn doing don done during each either else enough even ever everything "
    "exactly exist few for from give goes going got had hadn has hasn have haven he hello her here hers hey hi him "
    "himself his how however i if im in into is isn it its just kind least less let like likely little ll lot m many "
    "may mcp me might mine more most much must my myself need never nobody none now of often ok okay on once one only "
    "onto or other others otherwise ought our ours own per perhaps please possible pretty quite rather re really s "
    "same she should since so some somebody somehow someone something soon still stuff such sure t than thanks that "
    "the their them then there these thing things this those though through to too tool tools toward until up us use "
    "used using ve very want was wasn we well were weren what when where whether which while who whom whose will with "
    "without won would wouldn yes you your"
)
"""Words of queries that are ignored, separated by spaces."""

POLITE: Final = "can could i let like me need now please then to want would you"
"""Words before the verb of a request, separated by spaces."""

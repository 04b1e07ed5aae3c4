// A link to a typed plan is that of this page, for its title and its picture; the planner shows the plan.
if (location.hash.startsWith("#p=")) location.replace(new URL(`../../plan.html${location.hash}`, location.href).href);

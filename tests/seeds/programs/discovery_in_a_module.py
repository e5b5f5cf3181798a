# Discover workflows in specific module only
from myapp import workflows
workflows = discover_workflows(workflows)

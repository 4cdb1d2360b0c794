"""What the tools do, without MCP: `Service` in service.py joins the parts, a module for each area of work."""
